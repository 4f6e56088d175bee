import numpy as np
import pytest

from pipelines import Dataset, Preprocessing, Split, draw_gallery, hold_out_classes, join_splits

PIXELS = np.zeros((2, 2, 2, 1), np.uint8)


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
    ("boxes", "error", "message"),
    [
        ([[0, 0, 1, 1]], ValueError, r"four edges per image\. .*images=2, boxes\.shape=\(1, 4\)"),
        ([[0, 0, 1]] * 2, ValueError, r"four edges per image\. .*boxes\.shape=\(2, 3\)"),
        ([[0.0, 0, 1, 1]] * 2, TypeError, r"`boxes` must be integers\. Received: dtype=float64"),
        (
            [[0, 0, 3, 2], [0, 0, 4, 2]],
            ValueError,
            r"box=\[0, 0, 4, 2\], width=3, height=2",
        ),
        ([[0, 0, 3, 2], [0, 0, 2, 3]], ValueError, r"row=1, box=\[0, 0, 2, 3\]"),
        ([[0, 0, 3, 2], [1, 0, 1, 2]], ValueError, r"row=1, box=\[1, 0, 1, 2\]"),
        ([[0, 0, 3, 2], [0, -1, 1, 2]], ValueError, r"row=1, box=\[0, -1, 1, 2\]"),
    ],
)
def test_rejects_boxes_that_do_not_fit(boxes, error, message):
    with pytest.raises(error, match=message):
        Split(np.zeros((2, 2, 3, 1), np.uint8), [0, 1], boxes=boxes)


def test_both_splits_of_a_dataset_join_with_their_names():
    first = Split(["a.png", "b.png"], [1, 2], {1: "a", 2: "b"}, super_labels=[0, 0])
    second = Split(["c.png"], [3], {3: "c"})
    both = Dataset("x", first, second, image_size=(2, 2, 1)).both()
    assert both.images.tolist() == ["a.png", "b.png", "c.png"]
    assert both.names == ["a", "b", "c"]
    assert both.super_labels is None


@pytest.mark.parametrize(
    ("super_labels", "error", "message"),
    [
        ([1, 1], ValueError, r"one id per image\. Received: images=3, super_labels\.shape=\(2,\)"),
        ([1.0, 1.0, 2.0], TypeError, r"`super_labels` must be integers\. Received: dtype=float64"),
        (
            [1, 5, 2],
            ValueError,
            r"same for all images .*class=7, super_labels=\[1, 2\]",
        ),
    ],
)
def test_rejects_super_labels_that_do_not_fit(super_labels, error, message):
    with pytest.raises(error, match=message):
        Split(np.zeros((3, 2, 2, 1), np.uint8), [7, 8, 7], super_labels=super_labels)


@pytest.mark.parametrize(
    ("images", "labels", "error", "message"),
    [
        (PIXELS, [0], ValueError, r"one id per image\. Received: images=2, labels\.shape=\(1,\)"),
        (np.zeros((0, 2, 2, 1), np.uint8), np.zeros(0, int), ValueError, "at least one image"),
        (PIXELS, np.zeros(2), TypeError, r"`labels` must be integers\. Received: dtype=float64"),
        (["a.png", "b.png"], ["a", "b"], TypeError, r"integers; convert names by np\.unique\("),
        (["a.png", "b.png"], np.eye(2), TypeError, r"integers; convert one-hot rows by np\.argmax"),
        (PIXELS / 255, [0, 0], TypeError, r"by images.astype\('uint8'\)\. .*dtype=float64"),
        (PIXELS[..., 0], [0, 0], TypeError, r"grey images by images\[..., None\]\. .*\(2, 2, 2\)"),
        ([PIXELS[0], PIXELS[:1]], [0, 0], ValueError, "`images` must be of one size, or paths"),
        (["a.png", None], np.zeros(2, int), TypeError, r"\(n,\) paths\. Received: .*dtype=object"),
        ([object()], np.zeros(1, int), TypeError, r"\(n,\) paths\. Received: .*dtype=object"),
        (None, None, TypeError, r"\(n,\) paths\. Received: shape=\(\), dtype=object"),
        ("a.png", [0], TypeError, r"\(n,\) paths\. Received: shape=\(\), dtype=<U5"),
        ([["a.png"], ["b.png"]], np.zeros(2, int), TypeError, r"Received: shape=\(2, 1\)"),
    ],
)
def test_rejects_images_and_labels_that_do_not_fit(images, labels, error, message):
    with pytest.raises(error, match=message):
        Split(images, labels)


def test_holding_out_takes_the_last_classes_whole():
    split = tiny(np.tile([7, 2, 9, 4, 0], 3))
    rest, held_out = hold_out_classes(split, 0.4)
    assert sorted(rest.labels) == [0, 0, 0, 2, 2, 2, 4, 4, 4]
    assert sorted(held_out.labels) == [7, 7, 7, 9, 9, 9]


@pytest.mark.parametrize(
    ("split", "share", "error", "message"),
    [
        (tiny([1, 2]), 0.0, ValueError, "`share` must be > 0 and < 1. Received: share=0.0"),
        (tiny([1, 2]), 1.0, ValueError, "`share` must be > 0 and < 1. Received: share=1.0"),
        (tiny([1, 2]), "a", TypeError, "^`share` must be a number. Received: share='a'$"),
        (tiny([1, 2]), True, TypeError, "^`share` must be a number. Received: share=True$"),
        (tiny([1, 1]), 0.5, ValueError, "needs 2 or more. Received: classes=1"),
        ("train", 0.5, TypeError, "`dataset.train`. Received: split of type str"),
    ],
)
def test_holding_out_rejects_what_cannot_be_divided(split, share, error, message):
    with pytest.raises(error, match=message):
        hold_out_classes(split, share)


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_both_sides_keep_a_class(share):
    rest, held_out = hold_out_classes(tiny([1, 2, 3]), share)
    assert min(rest.num_classes, held_out.num_classes) == 1


def test_a_gallery_is_a_third_split():
    train, test = Split(["a.png"], [1], {1: "one"}), Split(["b.png"], [2])
    gallery = Split(["c.png", "d.png"], [2, 3], {3: "three"})
    dataset = Dataset("x", train, test, (1, 1, 1), gallery=gallery)
    assert list(dataset.splits) == ["train", "test", "gallery"]
    assert dataset.both().images.tolist() == ["a.png", "b.png", "c.png", "d.png"]
    assert dataset.both().names == ["one", "2", "three"]
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
    with pytest.raises(TypeError, match=r"`seed` must be an integer\. Received: seed=1\.5"):
        draw_gallery(tiny([1, 1]), 1.5)
    with pytest.raises(ValueError, match=r"`seed` must be >= 0\. Received: seed=-1"):
        draw_gallery(tiny([1, 1]), -1)
    with pytest.raises(ValueError, match=r"2 or more images\. Received: images=2, classes=2"):
        draw_gallery(tiny([1, 2]))


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (
            [Split(["a.png"], [0], boxes=[[0, 0, 2, 2]]), Split(["c.png"], [1])],
            r"have boxes, or none.*have_boxes=\[True, False",
        ),
        (
            [Split(["a.png"], [0], warped=Preprocessing(size)) for size in (32, 64)],
            "have the same `warped`",
        ),
    ],
)
def test_splits_to_join_are_of_one_kind(splits, message):
    with pytest.raises(ValueError, match=message):
        join_splits(splits)
