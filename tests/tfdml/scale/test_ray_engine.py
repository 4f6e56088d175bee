"""A Ray cluster of two machines, which are processes of this one."""

import os
import pathlib
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    patient = {"worker_register_timeout_seconds": 600}  # on a busy machine
    head = {"num_cpus": 1, "_system_config": patient}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))  # of the workers
        cluster = Cluster(initialize_head=True, head_node_args=head)
        yield cluster
        cluster.shutdown()


def start(version, images, out, *flags):
    flags = ["--model", version, "--images", images, "--out", out, "--shard_size", 50, *flags]
    program = [sys.executable, "-m", "tfdml.scale", "embed", *map(str, flags)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(program, **pipes, env={**os.environ, "PYTHONPATH": str(ROOT)})


def table_of(out):
    return pa.concat_tables([pq.read_table(path) for path in sorted(out.glob("shards/*"))])


def test_a_machine_that_dies_loses_nothing(cluster, version, photos, tmp_path):
    paths = [str(path) for path in sorted(photos.rglob("[!.]*.[jp]*g"))] * 300
    pq.write_table(pa.table({"path": paths}), tmp_path / "many.parquet")
    given = version, tmp_path / "many.parquet"
    local = start(*given, tmp_path / "local")
    assert local.wait() == 0, local.communicate()
    other, out = cluster.add_node(num_cpus=1), tmp_path / "out"
    job = start(*given, out, "--engine", "ray", "--address", cluster.address)
    while len(list(out.glob("shards/*.parquet"))) < 3:
        assert job.poll() is None, job.communicate()
        time.sleep(0.05)
    cluster.remove_node(other, allow_graceful=False)
    assert len(list(out.glob("shards/*.parquet"))) < 40
    printed, err = job.communicate()
    assert job.returncode == 0, err
    assert "Embedded 1,800 images" in printed
    table, expected = table_of(out), table_of(tmp_path / "local")
    assert table["id"].to_pylist() == list(range(2400))
    assert table.drop_columns("embedding") == expected.drop_columns("embedding")
    rows = zip(table["embedding"].to_pylist(), expected["embedding"].to_pylist(), strict=True)
    for row, same in rows:
        assert row == (None if same is None else pytest.approx(same, abs=1e-5))


def test_a_failure_is_one_sentence(cluster, version, tmp_path):
    pq.write_table(pa.table({"path": ["nope://a"]}), tmp_path / "list.parquet")
    given = version, tmp_path / "list.parquet", tmp_path / "out"
    job = start(*given, "--engine", "ray", "--address", cluster.address)
    _, err = job.communicate()
    assert job.returncode == 1
    assert err.count("\n") == 1
    assert "nope://a cannot be read" in err
    assert not list(tmp_path.glob("out/shards/*"))


def test_a_missing_cluster_is_one_sentence(version, photos, tmp_path):
    pytest.importorskip("ray")
    job = start(version, photos, tmp_path / "out", "--engine", "ray", "--address", "127.0.0.1:1")
    _, err = job.communicate()
    assert job.returncode == 2
    assert "no Ray cluster answers at 127.0.0.1:1" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_a_cluster_without_processors_is_rejected(monkeypatch):
    pytest.importorskip("ray")
    from tfdml.scale import ray_engine

    nodes = [{"Alive": True, "Resources": {"CPU": cpus}} for cpus in (0, 1, 16, 16)]
    monkeypatch.setattr(ray_engine.ray, "nodes", lambda: nodes)
    assert ray_engine._actors() == (8, 4, {"num_cpus": 4})
    del nodes[1:]
    with pytest.raises(ValueError, match="must have GPUs or CPUs"):
        ray_engine._actors()
