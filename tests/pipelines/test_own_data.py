"""Splits of one's own data: what is taken as it is, and how the rest is converted."""

import dataclasses
import io
import pathlib
import re
import struct

import numpy as np
import pytest
from PIL import Image, ImageOps

import pipelines
from pipelines import Split

UNEVEN = {"a": np.zeros((3, 5)), "b": ["x", "y"]}
FLOATS = np.linspace(0, 1, 4 * 2 * 2 * 3).reshape(4, 2, 2, 3)


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


@pytest.fixture
def rows(rng):
    """A split of two inputs, numbers and texts, in 6 classes of 4 rows."""
    inputs = {"numbers": rng.normal(size=(24, 5)), "texts": [f"text {row}" for row in range(24)]}
    labels = np.arange(24) % 6
    return Split(inputs=inputs, labels=labels, super_labels=labels // 2)


def test_rows_have_parts_and_hard_neighbours(rows):
    whole, labels = next(iter(pipelines.balanced_batches(rows, 4, 3)))
    part, own = next(iter(pipelines.balanced_batches(rows, 4, 3, part=(1, 3))))
    np.testing.assert_array_equal(part["texts"], whole["texts"][4:8])
    np.testing.assert_array_equal(own, labels[4:8])
    neighbours = pipelines.HardNeighbours(rows.labels, 8, refresh_every=2)
    neighbours.refresh(0, rows.inputs["numbers"])
    batches = pipelines.pair_batches(rows, 8, hard_neighbours=neighbours)
    assert [len(labels) for _, labels in batches.take(2)] == [8, 8]


def test_evaluation_gives_all_rows_in_order(rows):
    batches = list(pipelines.evaluation_batches(rows, batch_size=10))
    assert [len(inputs["texts"]) for inputs in batches] == [10, 10, 4]
    numbers = np.concatenate([inputs["numbers"] for inputs in batches])
    np.testing.assert_array_equal(numbers, rows.inputs["numbers"])
    _, labels = next(iter(pipelines.evaluation_batches(rows, with_labels=True)))
    np.testing.assert_array_equal(labels, rows.labels)


def test_splits_of_rows_are_cut_and_joined(rows):
    assert repr(rows) == "<Split: 24 rows of 6 classes>"
    rest, held_out = pipelines.hold_out_classes(rows, 0.5)
    assert held_out.inputs["texts"].tolist() == [f"text {i}" for i in range(24) if i % 6 >= 3]
    joined = pipelines.join_splits([held_out, rest])
    assert joined.inputs["texts"].tolist() == [*held_out.inputs["texts"], *rest.inputs["texts"]]
    table = dataclasses.replace(rest, inputs=rest.inputs["numbers"])
    assert table.subset([1]).inputs.shape == (1, 5)
    with pytest.raises(ValueError, match="splits to join must have the same inputs, or none"):
        pipelines.join_splits([rest, table])


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"inputs": UNEVEN}, ValueError, "a.shape=(3, 5), b.shape=(2,), labels.shape=(3,)"),
        ({"inputs": np.zeros((2, 5))}, ValueError, "inputs.shape=(2, 5), labels.shape=(3,)"),
        ({"inputs": {}}, ValueError, "at least one. Received: labels.shape=(3,)"),
        ({"inputs": [], "labels": []}, ValueError, "at least one. Received: inputs.shape=(0,)"),
        ({"inputs": [[1], [2, 3], [4]]}, ValueError, "`inputs` must have rows of one shape: "),
        ({"inputs": ["x", None, "y"]}, TypeError, "rows of numbers or texts. Received: shape=(3,)"),
        ({"inputs": np.zeros(3), "images": ["1.jpg"]}, ValueError, "Received: given=['images']"),
        ({"images": np.zeros((3, 64))}, TypeError, "paths; other rows are the `inputs` of a split"),
    ],
)
def test_rejects_rows_that_do_not_fit(given, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Split(**{"labels": [0, 0, 1], **given})


def test_rows_take_no_options_of_images(rows):
    given = {"image_size": (8, 8, 1)}, {"augmentation": pipelines.Augmentation()}
    for options in (*given, {"preprocessing": pipelines.Preprocessing()}):
        with pytest.raises(ValueError, match="options of images must be None for a split of `inpu"):
            pipelines.balanced_batches(rows, 2, 2, **options)
    with pytest.raises(ValueError, match=r"Received: image_size=\(8, 8, 1\)"):
        pipelines.evaluation_batches(rows, (8, 8, 1))
