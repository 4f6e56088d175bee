"""Batches of a seed and step are those of earlier versions, for all that readers do."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from pipelines import Augmentation, Preprocessing, Split, balanced_batches, evaluation_batches

MEAN = np.linspace(0, 255, 10 * 10 * 3, dtype=np.float32).reshape(10, 10, 3)
# The images, options of the augmentation and of the preprocessing, and what is `summed` of images
# that are trained on and scored.
READINGS = [
    (
        "files in boxes",
        {"crop": 0.5, "aspect": 1.3, "flip": True, "rotation": 20, "zoom": 0.2},
        {},
        [-795.6, -4690.1],
    ),
    ("pixels", {"flip": True, "shift": 0.1, "colour": 0.3}, {}, [63.6, 145.7]),
    ("pixels", {"symmetries": 8}, {}, [291.0, 145.7]),
    ("boxes", {}, {"trim_white": True, "warp_size": 12}, [-521.8, 1296.1]),
    ("pixels", {"rotation": 5.0}, {"warp_size": 10, "mean_image": MEAN}, [-505.4, 2370.1]),
]


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    """Images, their boxes, and both in files."""
    rows = np.arange(20 * 12 * 14 * 3).reshape(20, 12, 14, 3)
    images = (rows * rows // 7 % 251).astype(np.uint8)
    labels = np.repeat(np.arange(5), 4)
    boxes = [[row % 3, row % 4, 8 + row % 6, 7 + row % 5] for row in range(20)]
    folder = tmp_path_factory.mktemp("images")
    paths = [folder / f"{row}.png" for row in range(20)]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    pixels, files = Split(images, labels), Split(paths, labels)
    boxed = [dataclasses.replace(split, boxes=boxes) for split in (pixels, files)]
    return {"pixels": pixels, "boxes": boxed[0], "files in boxes": boxed[1]}


def summed(batches):
    """A sum of all pixels by their places, which no change of their order leaves alone."""
    pixels = np.concatenate([np.ravel(images) for images in batches]).astype(np.float64)
    return float(pixels @ np.cos(np.arange(pixels.size)))


@pytest.mark.parametrize(("name", "augmentation", "preprocessing", "expected"), READINGS)
def test_batches_are_those_of_earlier_versions(splits, name, augmentation, preprocessing, expected):
    options = {"image_size": (8, 8, 3), "preprocessing": Preprocessing(**preprocessing)}
    augmentation = Augmentation(**augmentation)
    trained = balanced_batches(
        splits[name], 3, 2, 5, augmentation=augmentation, start_step=9, **options
    )
    trained = [images for images, _ in trained.take(2).as_numpy_iterator()]
    scored = list(evaluation_batches(splits[name], **options).as_numpy_iterator())
    assert [summed(trained), summed(scored)] == pytest.approx(expected, abs=1)
