import keras
import numpy as np
import pytest

import tfdml
from benchmarks.peers.case import TFDML
from benchmarks.peers.racers import RACERS
from benchmarks.peers.workers import tfdml_networks, tfdml_race, tfdml_start


@pytest.fixture
def settings(tmp_path, rng):
    """Those of a race of small images; its files are in the folder of the test."""
    for name, classes in (("train", 4), ("test", 3)):
        images = rng.integers(0, 256, (4 * classes, 14, 14, 1)).astype(np.uint8)
        arrays = {f"{name}_images": images, f"{name}_labels": np.arange(4 * classes) // 4}
        np.savez(tmp_path / f"{name}.npz", **arrays)
    parts = [np.load(tmp_path / f"{name}.npz") for name in ("train", "test")]
    np.savez(tmp_path / "images.npz", **parts[0], **parts[1])
    network = {"network": "small_cnn", "shape": [14, 14, 1], "dim": 128, "seed": 3}
    weights = tfdml_networks.prepare({**network, "pretrained": None}, tmp_path)()
    np.savez(tmp_path / "weights.npz", **weights)
    return {
        **network,
        **vars(RACERS["CosFace"][TFDML].built),
        "inputs": "images.npz",
        "weights": "weights.npz",
        "pretrained": None,
        "validation_share": 0,
        "pixels": 14,
        "augmentation": {"rotation": 10.0},
        "head_multiplier": 1.0,
        "rate": 1e-3,
        "classes_per_batch": 2,
        "images_per_class": 2,
        "ks": [1, 2],
        "budget": {"steps": 3},
    }


def test_a_run_spends_its_budget_and_scores_the_other_classes(settings, tmp_path):
    outputs = tfdml_race.prepare(settings, tmp_path)()
    assert outputs["steps"] == 3
    assert 0 <= outputs["recall@1"] <= outputs["recall@2"] <= 1
    assert outputs["seconds"] > 0


def test_a_race_starts_with_an_untrained_network_and_the_augmentation(settings, tmp_path):
    outputs = tfdml_start.prepare(settings, tmp_path)()
    assert outputs["embeddings"].shape == (4, 128)
    images = tfdml_race.images_of(settings, tmp_path)["train_images"][:4].astype("float32")
    assert np.abs(np.asarray(outputs["augmented"]) - images).max() > 1


def test_a_recipe_replaces_the_settings_of_a_trial(settings, tmp_path):
    recipe = {"loss": "triplet", "classes_per_batch": 3, "steps": 9, "schedule": "cosine"}
    recipe |= {"dataset": "omniglot", "augmentation": {"zoom": 0.2}, "precision": "mixed_bfloat16"}
    settings["recipe"] = recipe
    built = tfdml_race.recipe_of(settings, tmp_path)
    assert (built.loss, built.classes_per_batch, built.images_per_class) == ("triplet", 3, 4)
    images = tfdml_race.images_of(settings, tmp_path)
    augmentation = tfdml_race.dataset_of(settings, images, built.augmentation).augmentation
    assert (augmentation.rotation, augmentation.zoom) == (10.0, 0.2)


def test_a_run_starts_with_the_weights_of_the_peer(settings, tmp_path):
    keras.utils.set_random_seed(settings["seed"])
    other = tfdml.models.build_embedder("small_cnn", input_shape=(14, 14, 1))
    tfdml_race.check_start(other, tmp_path / "weights.npz")
    other.layers[-2].bias.assign_add(np.ones(128))
    with pytest.raises(ValueError, match=r"must start with the weights of .*weights\.npz"):
        tfdml_race.check_start(other, tmp_path / "weights.npz")
