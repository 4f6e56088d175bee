"""Splits of one's own data: what is taken as it is, and how the rest is converted."""

import io
import pathlib
import struct

import numpy as np
import pytest
from PIL import Image, ImageOps

import pipelines
from pipelines import Split

FLOATS = np.linspace(0, 1, 4 * 2 * 2 * 3).reshape(4, 2, 2, 3)


def test_floats_are_rejected_with_the_way_to_convert_them():
    with pytest.raises(TypeError, match=r"\(255 \* images\).astype\('uint8'\).*dtype=float64"):
        Split(FLOATS, [0, 0, 1, 1])
    assert Split((255 * FLOATS).astype("uint8"), [0, 0, 1, 1]).images.max() == 255


@pytest.mark.parametrize("labels", [list("aabb"), np.array(list("aabb"), object)])
def test_names_as_labels_are_rejected_with_the_way_to_convert_them(labels):
    with pytest.raises(TypeError, match=r"np.unique\(labels, return_inverse=True\)\[1\]. Received"):
        Split(["1.jpg", "2.jpg", "3.jpg", "4.jpg"], labels)
    with pytest.raises(TypeError) as error:
        Split(["1.jpg"], [0.5])
    assert "np.unique" not in str(error.value)


def test_lists_of_strings_and_of_paths_are_taken():
    names = ["a/1.jpg", "b/2.jpg"]
    for images in (names, tuple(names), np.array(names), [pathlib.Path(name) for name in names]):
        split = Split(images, [0, 1])
        assert split.holds_paths
        assert split.images.tolist() == names


def test_labels_come_along_for_validation():
    split = Split((255 * FLOATS).astype("uint8"), [5, 5, 7, 7])
    batches = list(pipelines.evaluation_batches(split, batch_size=3, with_labels=True))
    assert [labels.numpy().tolist() for _, labels in batches] == [[5, 5, 7], [7]]
    for (images, _), alone in zip(
        batches, pipelines.evaluation_batches(split, batch_size=3), strict=True
    ):
        np.testing.assert_array_equal(images, alone)
    with pytest.raises(TypeError, match="with_labels"):
        pipelines.evaluation_batches(split, with_labels=1)


def test_a_missing_file_of_a_csv_names_the_folder_that_paths_are_relative_to(tmp_path):
    (tmp_path / "list.csv").write_text("path,label\nphotos/1.jpg,a\nphotos/2.jpg,b\n")
    with pytest.raises(FileNotFoundError, match=f"relative to {tmp_path}, the folder of list.csv"):
        pipelines.load("csv", tmp_path)


def test_a_box_is_in_the_pixels_of_the_file_and_what_it_holds_is_turned(tmp_path, rng):
    exif = b"Exif\0\0MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x0112, 3, 1, 6, 0, 0)
    pixels = rng.integers(0, 256, (16, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "1.jpg", exif=exif)
    content = io.BytesIO((tmp_path / "1.jpg").read_bytes())
    box = (2, 3, 22, 9)
    upright = ImageOps.exif_transpose(Image.open(content))
    whole = Split([tmp_path / "1.jpg"], [0])
    images = next(iter(pipelines.evaluation_batches(whole, (24, 16, 3))))
    np.testing.assert_array_equal(images[0], np.asarray(upright))
    stored = Image.open(content).crop(box)
    expected = np.asarray(stored.transpose(Image.Transpose.ROTATE_270))
    part = Split([tmp_path / "1.jpg"], [0], boxes=[box])
    images = next(iter(pipelines.evaluation_batches(part, (20, 6, 3))))
    np.testing.assert_array_equal(images[0], expected)


def test_several_labels_are_checked():
    names = ["1.jpg", "2.jpg"]
    assert Split(names, [[1, 0], [1, 1]]).num_classes == 2
    for wrong, message in (
        ([[1, 2], [0, 0]], r"must be 0 or 1\. Received: labels=0 to 2"),
        ([[1, 0]], r"a row of 0 and 1 per image\. Received: images=2, labels.shape=\(1, 2\)"),
        ([[1], [0], [0]], r"one id per image\. Received: images=2, labels.shape=\(3, 1\)"),
    ):
        with pytest.raises(ValueError, match=message):
            Split(names, wrong)
    with pytest.raises(ValueError, match="super-classes must have one class id per image"):
        Split(names, [[1, 0], [1, 1]], super_labels=[0, 0])
