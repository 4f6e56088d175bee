import numpy as np
import pytest

import pipelines
from benchmarks.peers.workers import race_images
from benchmarks.peers.workers.race_images import images_of, recalls
from tfdml.evaluation import recall_at_k


@pytest.fixture
def folder(tmp_path, rng):
    """A folder with the images of a small race: 10 classes to train, 4 to score."""
    np.savez(
        tmp_path / "images.npz",
        train_images=rng.integers(0, 256, (30, 6, 6, 1)).astype(np.uint8),
        train_labels=np.arange(30) % 10,
        test_images=rng.integers(0, 256, (8, 6, 6, 1)).astype(np.uint8),
        test_labels=np.arange(8) // 2,
    )
    return tmp_path


def settings(share, pixels=6):
    return {"inputs": "images.npz", "validation_share": share, "pixels": pixels}


def test_classes_are_held_out_as_by_the_pipelines(folder):
    every, images = np.load(folder / "images.npz"), images_of(settings(0.2), folder)
    split = pipelines.Split(every["train_images"], every["train_labels"])
    for name, part in zip(("train", "test"), pipelines.hold_out_classes(split, 0.2), strict=True):
        np.testing.assert_array_equal(images[f"{name}_images"], part.images)
        np.testing.assert_array_equal(images[f"{name}_labels"], part.labels)


def test_without_a_share_the_test_images_are_scored_at_their_centre(folder):
    every, images = np.load(folder / "images.npz"), images_of(settings(0, pixels=4), folder)
    np.testing.assert_array_equal(images["train_images"], every["train_images"])
    np.testing.assert_array_equal(images["test_images"], every["test_images"][:, 1:5, 1:5])


@pytest.mark.parametrize("block", [7, 1000])
def test_recall_is_that_of_tfdml(rng, monkeypatch, block):
    monkeypatch.setattr(race_images, "BLOCK", block)
    labels = rng.integers(0, 8, 60)
    rows = rng.normal(size=(60, 5)) + 0.5 * rng.normal(size=(8, 5))[labels]
    expected = recall_at_k(rows, labels, k=(1, 2, 4))
    found = recalls(rows, labels, (1, 2, 4))
    assert found == {f"recall@{k}": pytest.approx(score) for k, score in expected.items()}
    assert 0 < expected[1] < expected[4] < 1


def test_a_network_that_diverged_finds_nothing():
    assert recalls(np.full((4, 2), np.nan), np.zeros(4, int), (1,)) == {"recall@1": 0.0}
