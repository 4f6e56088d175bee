import dataclasses
import io
import pathlib
import re
import struct

import numpy as np
import pytest
from PIL import Image, ImageOps

from pipelines import (
    Dataset,
    Preprocessing,
    Reader,
    Split,
    draw_gallery,
    hold_out_classes,
    join_splits,
)

PIXELS = np.zeros((2, 2, 3, 1), np.uint8)
UNEVEN = {"a": np.zeros((3, 5)), "b": ["x", "y"]}


def tiny(labels):
    return Split(np.zeros((len(labels), 2, 2, 1), np.uint8), np.array(labels))


def test_counts_its_classes_and_takes_a_column_of_any_integers():
    split = tiny(np.array([[5], [5], [-7]], np.int8))
    assert repr(split) == "<Split: 3 images of 2 classes>"
    assert split.labels.tolist() == [5, 5, -7]
    assert split.labels.dtype == np.int64
    assert not Split(["a.png"], [0], warped=Preprocessing(32)).holds_records
    assert Split(["a.tfrecord:0:9"], [0], warped=Preprocessing(32)).holds_records


def test_renumbered_classes_keep_their_order_and_names():
    split = Split(np.zeros((4, 2, 2, 1), np.uint8), [7, 2**40, 7, 3], {7: "seven", 2**40: "large"})
    renumbered = split.renumbered()
    assert renumbered.labels.tolist() == [1, 2, 1, 0]
    assert renumbered.labels.dtype == np.int64
    assert renumbered.names == split.names == ["3", "seven", "large"]


def test_super_labels_and_boxes_stay_with_their_rows():
    boxes = np.array([[0, 0, 1 + i % 2, 2] for i in range(6)], np.int8)
    supers = [1, 2, 1, -4, -4, 2]
    images = np.arange(24, dtype=np.uint8).reshape(6, 2, 2, 1)
    split = Split(images, [7, 8, 7, 9, 9, 5], None, supers, boxes)
    assert split.super_labels.dtype == split.boxes.dtype == np.int64
    rest, held_out = hold_out_classes(split, 0.5)
    both = Dataset("x", rest, held_out, image_size=(2, 2, 1)).both()
    rows = [0, 2, 5, 1, 3, 4]
    for joined in (both, split.subset(rows), split.renumbered().subset(rows)):
        assert joined.super_labels.tolist() == [supers[row] for row in rows]
        np.testing.assert_array_equal(joined.boxes, boxes[rows])
        np.testing.assert_array_equal(joined.images, images[rows])
    assert both.labels.tolist() == [7, 7, 5, 8, 9, 9]
    assert Split(["a.png"], [0], boxes=[[5, 5, 9000, 9000]]).boxes.tolist() == [[5, 5, 9000, 9000]]


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("labels", [0], ValueError, r"one id per image\. Received: images=2, labels\.shape=\(1,\)"),
        ("labels", np.zeros(2), TypeError, r"`labels` must be integers\. Received: dtype=float64"),
        ("labels", [[1], [0], [0]], ValueError, r"one id per image\. .*labels.shape=\(3, 1\)"),
        ("labels", [[1, 2], [0, 0]], ValueError, r"must be 0 or 1\. Received: labels=0 to 2"),
        ("labels", [[1, 0]], ValueError, r"a row of 0 and 1 .*images=2, labels.shape=\(1, 2\)"),
        ("labels", ["a", "b"], TypeError, r"integers; convert names by np\.unique\("),
        ("labels", np.eye(2), TypeError, r"integers; convert one-hot rows by np\.argmax"),
        ("images", np.zeros((0, 2, 2, 1), np.uint8), ValueError, "at least one image"),
        ("images", PIXELS / 255, TypeError, r"by images.astype\('uint8'\)\. .*dtype=float64"),
        (
            "images",
            PIXELS[..., 0],
            TypeError,
            r"grey images by images\[..., None\]\. .*\(2, 2, 3\)",
        ),
        ("images", [PIXELS[0], PIXELS[:1]], ValueError, "`images` must be of one size, or paths"),
        ("images", ["a.png", None], TypeError, r"\(n,\) paths\. Received: .*dtype=object"),
        ("images", None, TypeError, r"\(n,\) paths\. Received: shape=\(\), dtype=object"),
        ("super_labels", [1], ValueError, r"one id per image\. Received: .*labels\.shape=\(1,\)"),
        ("super_labels", [1, 2], ValueError, r"same for all .*class=7, super_labels=\[1, 2\]"),
        ("boxes", [[0, 0, 1, 1]], ValueError, r"four edges per image\. .*boxes\.shape=\(1, 4\)"),
        ("boxes", [[0.0, 0, 1, 1]] * 2, TypeError, r"`boxes` must be integers\. .*dtype=float64"),
        ("boxes", [[0, 0, 3, 2], [0, 0, 4, 2]], ValueError, r"0, 0, 4, 2\], width=3, height=2"),
        ("boxes", [[0, 0, 3, 2], [0, 0, 2, 3]], ValueError, r"row=1, box=\[0, 0, 2, 3\]"),
        ("boxes", [[0, 0, 3, 2], [1, 0, 1, 2]], ValueError, r"row=1, box=\[1, 0, 1, 2\]"),
        ("boxes", [[0, 0, 3, 2], [0, -1, 1, 2]], ValueError, r"row=1, box=\[0, -1, 1, 2\]"),
    ],
)
def test_rejects_what_does_not_fit(name, value, error, message):
    with pytest.raises(error, match=message):
        Split(**{"images": PIXELS, "labels": [7, 7], name: value})


def test_holding_out_takes_the_last_classes_whole():
    split = tiny(np.tile([7, 2, 9, 4, 0], 3))
    rest, held_out = hold_out_classes(split, 0.4)
    assert sorted(rest.labels) == [0, 0, 0, 2, 2, 2, 4, 4, 4]
    assert sorted(held_out.labels) == [7, 7, 7, 9, 9, 9]

    for share in (0.001, 0.999):  # both sides keep a class
        parts = hold_out_classes(tiny([1, 2, 3]), share)
        assert min(part.num_classes for part in parts) == 1


@pytest.mark.parametrize(
    ("split", "share", "error", "message"),
    [
        (tiny([1, 2]), 0.0, ValueError, "`share` must be > 0 and < 1. Received: share=0.0"),
        (tiny([1, 2]), 1.0, ValueError, "`share` must be > 0 and < 1. Received: share=1.0"),
        (tiny([1, 1]), 0.5, ValueError, "needs 2 or more. Received: classes=1"),
        ("train", 0.5, TypeError, "`dataset.train`. Received: split of type str"),
    ],
)
def test_holding_out_rejects_what_cannot_be_divided(split, share, error, message):
    with pytest.raises(error, match=message):
        hold_out_classes(split, share)


def test_a_gallery_is_a_third_split():
    train = Split(["a.png"], [1], {1: "one"}, super_labels=[0])
    test = Split(["b.png"], [2])
    gallery = Split(["c.png", "d.png"], [2, 3], {3: "three"})
    dataset = Dataset("x", train, test, (1, 1, 1), gallery=gallery)
    assert list(dataset.splits) == ["train", "test", "gallery"]
    assert dataset.both().images.tolist() == ["a.png", "b.png", "c.png", "d.png"]
    assert dataset.both().names == ["one", "2", "three"]
    assert dataset.both().super_labels is None
    split, queries = dataset.scored()
    assert split.images.tolist() == ["b.png", "c.png", "d.png"]
    assert queries.tolist() == [True, False, False]
    without = Dataset("x", train, test, (1, 1, 1))
    assert list(without.splits) == ["train", "test"]
    assert without.scored() == (test, None)
    with pytest.raises(ValueError, match=r"train and gallery must not share .*shared=\['one'\]"):
        Dataset("x", train, test, (1, 1, 1), gallery=Split(["c.png"], [1]))


def test_a_gallery_has_one_random_image_of_every_class(rng):
    labels = rng.permutation(np.repeat([2**40, 2**40 + 1, -7, 5, 6], [4, 3, 2, 1, 6]))
    paths = np.array([f"{i}.png" for i in range(len(labels))])
    split = Split(paths, labels, super_labels=labels % 2)
    drawn = set()
    for seed in range(40):
        queries, gallery = draw_gallery(split, seed)
        assert sorted(gallery.labels) == sorted(set(labels))
        rows = [int(path.removesuffix(".png")) for path in gallery.images]
        assert rows == sorted(rows)
        np.testing.assert_array_equal(gallery.labels, labels[rows])
        np.testing.assert_array_equal(gallery.super_labels, labels[rows] % 2)
        others = np.delete(np.arange(len(labels)), rows)
        np.testing.assert_array_equal(queries.images, paths[others])
        np.testing.assert_array_equal(queries.labels, labels[others])
        np.testing.assert_array_equal(draw_gallery(split, seed)[1].images, gallery.images)
        drawn.update(rows)
    assert drawn == set(range(len(labels)))


def test_a_gallery_rejects_what_it_cannot_be_drawn_of():
    with pytest.raises(TypeError, match="`split` must be a `Split`"):
        draw_gallery([1, 2])
    with pytest.raises(ValueError, match=r"`seed` must be >= 0\. Received: seed=-1"):
        draw_gallery(tiny([1, 1]), -1)
    with pytest.raises(ValueError, match=r"2 or more images\. Received: images=2, classes=2"):
        draw_gallery(tiny([1, 2]))


@pytest.mark.parametrize(
    "options",
    [
        [{"images": ["a.png"], "boxes": [[0, 0, 2, 2]]}, {"images": ["b.png"]}],
        [{"images": ["a.png"], "warped": Preprocessing(size)} for size in (32, 64)],
        [{"inputs": {"a": [1]}}, {"inputs": {"b": [1]}}],
        [{"inputs": [1]}, {"images": ["b.png"]}],
    ],
)
def test_splits_to_join_are_of_one_kind(options):
    splits = [Split(labels=[0], **each) for each in options]
    with pytest.raises(ValueError, match="have the same `warped` and `inputs`, and all have boxes"):
        join_splits(splits)


def test_lists_of_strings_and_of_paths_are_taken():
    names = ["a/1.jpg", "b/2.jpg"]
    for images in (names, tuple(names), np.array(names), [pathlib.Path(name) for name in names]):
        split = Split(images, [0, 1])
        assert split.holds_paths
        assert split.images.tolist() == names


def test_a_box_is_in_the_pixels_of_the_file_and_what_it_holds_is_turned(tmp_path, rng):
    exif = b"Exif\0\0MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x0112, 3, 1, 6, 0, 0)
    pixels = rng.integers(0, 256, (16, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "1.jpg", exif=exif)
    content = io.BytesIO((tmp_path / "1.jpg").read_bytes())
    box = (2, 3, 22, 9)
    upright = ImageOps.exif_transpose(Image.open(content))
    row = {"path": str(tmp_path / "1.jpg")}
    np.testing.assert_array_equal(Reader((24, 16, 3)).image(row), np.asarray(upright))
    stored = Image.open(content).crop(box)
    expected = np.asarray(stored.transpose(Image.Transpose.ROTATE_270))
    np.testing.assert_array_equal(Reader((20, 6, 3)).image({**row, "box": box}), expected)


def test_images_of_several_labels_have_no_super_classes_and_are_not_divided():
    split = Split(["1.jpg", "2.jpg"], [[1, 0], [1, 1]])
    assert split.num_classes == 2
    for divide in (
        lambda: dataclasses.replace(split, super_labels=[0, 0]),
        lambda: hold_out_classes(split, 0.5),
        lambda: draw_gallery(split),
    ):
        message = r"one class id per image.*shuffled_batches, .* Received: labels.shape=\(2, 2\)"
        with pytest.raises(ValueError, match=message):
            divide()


@pytest.fixture
def rows(rng):
    """A split of two inputs, numbers and texts, in 6 classes of 4 rows."""
    inputs = {"numbers": rng.normal(size=(24, 5)), "texts": [f"text {row}" for row in range(24)]}
    labels = np.arange(24) % 6
    return Split(inputs=inputs, labels=labels, super_labels=labels // 2)


def test_splits_of_rows_are_cut_and_joined(rows):
    assert repr(rows) == "<Split: 24 rows of 6 classes>"
    rest, held_out = hold_out_classes(rows, 0.5)
    assert held_out.inputs["texts"].tolist() == [f"text {i}" for i in range(24) if i % 6 >= 3]
    joined = join_splits([held_out, rest])
    assert joined.inputs["texts"].tolist() == [*held_out.inputs["texts"], *rest.inputs["texts"]]
    table = dataclasses.replace(rest, inputs=rest.inputs["numbers"])
    assert table.subset([1]).inputs.shape == (1, 5)


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
