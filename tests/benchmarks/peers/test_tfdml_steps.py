import numpy as np
import pytest

from benchmarks.peers.workers import tfdml_networks, tfdml_steps


@pytest.mark.slow  # compiles a step
def test_the_work_is_a_step_and_returns_the_first_loss(tmp_path, rng):
    start = {"network": "small_cnn", "shape": [14, 14, 3], "dim": 128, "seed": 3}
    np.savez(
        tmp_path / "w.npz", **tfdml_networks.prepare({**start, "pretrained": None}, tmp_path)()
    )
    images = rng.integers(0, 256, (4, 14, 14, 3), np.uint8)
    np.savez(tmp_path / "i.npz", images=images, labels=np.arange(4) // 2)
    shape = {"pixels": 14, "classes_per_batch": 2, "images_per_class": 2}
    settings = {**start, **shape, "precision": "float32", "weights": "w.npz", "inputs": "i.npz"}
    work = tfdml_steps.prepare(settings, tmp_path)
    first, second = work(), work()
    assert 0 < first["loss"] == second["loss"] < np.inf
    assert set(work.versions) == {"tensorflow", "keras"}
