"""Replicas of one process and of several make the updates of one device."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from replicas_program import VARIANTS

from benchmarks.workers import free_addresses
from tfdml.losses import LOSSES

PROGRAM = pathlib.Path(__file__).with_name("replicas_program.py")
ROOT = pathlib.Path(__file__).parents[3]


def trained(folder, kind, names, workers=1):
    """What each process of a training wrote."""
    paths, processes, addresses = [], [], free_addresses(workers)
    for index in range(workers):
        path = folder / f"{kind}{workers}_{index}.npz"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if kind == "workers":
            task = {"type": "worker", "index": index}
            config = {"cluster": {"worker": addresses}, "task": task}
            environment["TF_CONFIG"] = json.dumps(config)
        command = [sys.executable, str(PROGRAM), str(path), kind, ",".join(names)]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(command, env=environment, **pipes))
        paths.append(path)
    for process in processes:
        error = process.communicate()[1]
        assert process.returncode == 0, error[-3000:]
    return [np.load(path) for path in paths]


@pytest.mark.slow
def test_replicas_and_workers_make_the_updates_of_one(tmp_path):
    names = [*LOSSES, *VARIANTS]
    [one] = trained(tmp_path, "one", names)
    for kind, workers in (("cpu:2", 1), ("cpu:4", 1), ("workers", 2), ("workers", 4)):
        for found in trained(tmp_path, kind, names, workers):
            assert set(found) == set(one)
            for name in one:
                close = {"rtol": 1e-6, "atol": 1e-6, "err_msg": name}
                np.testing.assert_allclose(found[name], one[name], **close)
    assert one["memory/loss"].shape == (20,)
