"""A Ray cluster of two machines, which are processes of this one."""

import os
import pathlib
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("versions")]
ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def cluster(monkeypatch):
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the workers
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    yield cluster
    cluster.shutdown()


@pytest.fixture
def images(photos, tmp_path):
    """A list of 3,500 images; those that cannot be read are one in seven."""
    paths = [str(path) for path in sorted(photos.rglob("[!.]*.*g"))] * 500
    pq.write_table(pa.table({"path": paths}), tmp_path / "many.parquet")
    return tmp_path / "many.parquet"


def start(version, images, out, *flags):
    flags = ["--model", version, "--images", images, "--out", out, "--shard_size", 50, *flags]
    program = [sys.executable, "-m", "tfdml.scale", "embed", *map(str, flags)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(program, **pipes, env={**os.environ, "PYTHONPATH": str(ROOT)})


def table_of(out):
    return pa.concat_tables([pq.read_table(path) for path in sorted(out.glob("shards/*"))])


def check_same(out, other):
    """Checks that two folders hold the same rows, with nearly the same embeddings."""
    table, expected = table_of(out), table_of(other)
    assert table["id"].to_pylist() == list(range(3500))
    assert table.drop_columns("embedding") == expected.drop_columns("embedding")
    for row, same in zip(
        table["embedding"].to_pylist(), expected["embedding"].to_pylist(), strict=True
    ):
        assert row == (None if same is None else pytest.approx(same, abs=1e-5))


def wait_for(out, shards, job):
    while len(list(out.glob("shards/*.parquet"))) < shards:
        assert job.poll() is None, job.communicate()
        time.sleep(0.05)


def test_a_machine_that_dies_loses_nothing(cluster, version, images, tmp_path):
    other = cluster.add_node(num_cpus=1)
    job = start(version, images, tmp_path / "out", "--engine", "ray", "--address", cluster.address)
    wait_for(tmp_path / "out", 5, job)
    cluster.remove_node(other, allow_graceful=False)
    assert len(list((tmp_path / "out").glob("shards/*.parquet"))) < 60
    out, err = job.communicate(timeout=500)
    assert job.returncode == 0, err
    assert "Embedded 3,000 images" in out
    assert start(version, images, tmp_path / "local").wait() == 0
    check_same(tmp_path / "out", tmp_path / "local")


def test_a_killed_driver_loses_what_was_in_flight(cluster, version, images, tmp_path):
    flags = ["--engine", "ray", "--address", cluster.address]
    job = start(version, images, tmp_path / "out", *flags)
    wait_for(tmp_path / "out", 5, job)
    job.kill()
    job.communicate()
    done = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("out/shards/*.parquet")}
    job = start(version, images, tmp_path / "out", *flags)
    assert job.wait(500) == 0, job.communicate()
    assert start(version, images, tmp_path / "local").wait() == 0
    check_same(tmp_path / "out", tmp_path / "local")
    assert all((tmp_path / "out/shards" / name).stat().st_mtime_ns == done[name] for name in done)


def test_actors_on_gpus_embed_what_tasks_read(cluster, version, images, tmp_path):
    cluster.add_node(num_cpus=1, num_gpus=1)  # Ray counts it, TensorFlow finds none
    flags = ["--engine", "ray", "--address", cluster.address]
    job = start(version, images, tmp_path / "out", *flags)
    assert job.wait(500) == 0, job.communicate()
    assert start(version, images, tmp_path / "local").wait() == 0
    check_same(tmp_path / "out", tmp_path / "local")


def test_a_failure_is_one_sentence(cluster, version, tmp_path):
    pq.write_table(pa.table({"path": ["nope://a"]}), tmp_path / "list.parquet")
    flags = ["--engine", "ray", "--address", cluster.address]
    job = start(version, tmp_path / "list.parquet", tmp_path / "out", *flags)
    _, err = job.communicate(timeout=500)
    assert job.returncode == 1
    assert err.count("\n") == 1
    assert "nope://a cannot be read" in err
    assert not list(tmp_path.glob("out/shards/*"))


def test_a_missing_cluster_is_one_sentence(version, images, tmp_path):
    pytest.importorskip("ray")
    flags = ["--engine", "ray", "--address", "127.0.0.1:1"]
    job = start(version, images, tmp_path / "out", *flags)
    _, err = job.communicate(timeout=500)
    assert job.returncode == 1
    assert "127.0.0.1:1" in err.splitlines()[-1]
    assert "Traceback" not in err
