import re

import archives
import numpy as np
import pytest

import pipelines
from pipelines.datasets import cub200

BIRDS = [
    ("001.Black_footed_Albatross", 3),
    ("002.Laysan_Albatross", 2),
    ("003.Sooty_Albatross", 1),
    ("004.Groove_billed_Ani", 4),
]
COUNTS = {"train": (5, 2), "test": (5, 2)}


@pytest.fixture
def birds(tmp_path, monkeypatch):
    """The folder that an archive of four birds unpacks to, in the layout of CUB_200_2011.tgz."""
    monkeypatch.setattr(cub200, "COUNTS", COUNTS)
    monkeypatch.setattr(cub200, "TRAINED", 2)
    return archives.write_birds(tmp_path, BIRDS)


def load(folder, **options):
    return pipelines.load("cub200", data_dir=folder, **options)


@pytest.mark.parametrize("parent", [False, True])
def test_the_first_classes_train(birds, parent):
    dataset = load(birds.parent if parent else birds)
    assert dataset.train.labels.tolist() == [1, 1, 1, 2, 2]
    assert dataset.test.labels.tolist() == [3, 4, 4, 4, 4]
    assert dataset.train.names == ["001.Black_footed_Albatross", "002.Laysan_Albatross"]
    for split in (dataset.train, dataset.test):
        for path, label in zip(split.images, split.labels.tolist(), strict=True):
            assert path.startswith(str(birds / "images" / split.class_names[label]))
    assert dataset.train.boxes is None
    assert dataset.gallery is None
    batch = next(iter(pipelines.evaluation_batches(dataset.both(), dataset.image_size)))
    assert batch.shape == (10, 224, 224, 3)


def test_rows_are_found_by_their_numbers_not_by_their_order(birds):
    for file in ("image_class_labels.txt", "bounding_boxes.txt"):
        lines = (birds / file).read_text().splitlines()
        (birds / file).write_text("\n".join(reversed(lines)))
    dataset = load(birds, boxes="annotated")
    assert dataset.train.labels.tolist() == [1, 1, 1, 2, 2]
    assert dataset.train.boxes[:2].tolist() == [[1, 2, 8, 4], [2, 2, 9, 5]]


def test_boxes_are_left_upper_width_and_height_cut_to_the_image(birds):
    boxes = load(birds, boxes="annotated").both().boxes
    expected = [[i, 2, i + 7, min(2 + i + 1, 16)] for i in range(1, 11)]
    assert boxes.tolist() == expected
    (birds / "bounding_boxes.txt").write_text(
        "".join(f"{i} 15.2 -1.0 9.0 40.0\n" for i in range(1, 11))
    )
    dataset = load(birds, boxes="annotated")
    assert dataset.test.boxes.tolist() == [[15, 0, 20, 16]] * 5
    batch = next(iter(pipelines.evaluation_batches(dataset.test, (4, 6, 3))))
    assert batch.shape == (5, 4, 6, 3)


def test_names_the_image_whose_box_is_elsewhere(birds):
    text = (birds / "bounding_boxes.txt").read_text().replace("4 4.0 2.0", "4 20.0 2.0")
    (birds / "bounding_boxes.txt").write_text(text)
    load(birds)
    message = r"Photo_0_2\.jpg: a box must be inside its image\. .*\[20\.0, 2\.0, 27\.0, 6\.5\]"
    with pytest.raises(ValueError, match=message):
        load(birds, boxes="annotated")


@pytest.mark.parametrize(
    "file", ["image_class_labels.txt", "classes.txt", "bounding_boxes.txt", "images.txt"]
)
def test_names_a_missing_list_and_its_archive(birds, file):
    (birds / file).rename(birds / "renamed.txt")
    message = re.escape(f"CUB-200-2011 must have {birds / file}") + r".*CUB_200_2011\.tgz"
    with pytest.raises(FileNotFoundError, match=message):
        load(birds, boxes="annotated")


def test_a_list_may_begin_with_the_mark_of_utf8(birds):
    before = load(birds)
    for path in birds.glob("*.txt"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert list(load(birds).test.images) == list(before.test.images)


def test_names_the_line_where_a_list_is_cut_off(birds):
    path = birds / "image_class_labels.txt"
    whole = path.read_text()
    path.write_text(whole[:-3])
    message = r"image_class_labels\.txt, line 10 must be `id class`; .*Received: '10'"
    with pytest.raises(ValueError, match=message):
        load(birds)
    path.write_text(whole.replace("3 1\n", "3 one\n"))
    with pytest.raises(ValueError, match=r"labels\.txt, line 3 must be .*Received: '3 one'"):
        load(birds)
    path.write_text("".join(whole.splitlines(keepends=True)[:7]))
    with pytest.raises(ValueError, match=r"a line for every image; .*without=3, first=8"):
        load(birds)
    path.write_text("")
    with pytest.raises(ValueError, match=r"labels\.txt must hold a list; .*lines=0"):
        load(birds)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"labels\.txt must be a text file"):
        load(birds)


def test_rejects_other_counts_than_published(birds, recwarn):
    lines = (birds / "images.txt").read_text().splitlines(keepends=True)
    (birds / "images.txt").write_text("".join(lines[:9]))
    message = (
        r"'cub200' differs from the published one \(test: 4 images of 2 classes where 5 images of "
        r"2 classes are published\)\. .*--skip_invalid true$"
    )
    with pytest.raises(ValueError, match=message):
        load(birds)
    assert len(load(birds, skip_invalid=True).test.labels) == 4
    assert len(recwarn) == 1
    assert str(recwarn[0].message).endswith("are published): its scores are not comparable")
    assert recwarn[0].filename == __file__


def test_names_the_images_that_are_missing_or_cannot_be_read(birds, recwarn):
    gone = birds / "images" / "004.Groove_billed_Ani" / "Photo_1_4.jpg"
    gone.unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 10 images that are missing: .*Photo_1_4"):
        load(birds)
    (birds / "images" / "001.Black_footed_Albatross" / "Photo_0_3.jpg").write_bytes(b"cut")
    dataset = load(birds, skip_invalid=True)
    assert (len(dataset.train.labels), len(dataset.test.labels)) == (4, 4)
    reported = [str(warning.message) for warning in recwarn]
    assert re.match(r"left out 1 of 10 images that are missing: .*Photo_1_4\.jpg$", reported[0])
    assert re.match(r"left out 1 images that cannot be read: .*\(3 bytes, .*\)$", reported[1])
    assert {warning.filename for warning in recwarn} == {__file__}


def test_boxes_stay_with_their_images_when_some_are_left_out(birds):
    (birds / "images" / "001.Black_footed_Albatross" / "Photo_1_3.jpg").unlink()
    with pytest.warns(UserWarning, match="left out 1 of 10 images"):
        dataset = load(birds, skip_invalid=True, boxes="annotated")
    assert dataset.train.boxes[:, 0].tolist() == [1, 3, 4, 5]


def test_a_training_class_needs_two_images(birds, monkeypatch):
    monkeypatch.setattr(cub200, "TRAINED", 3)
    monkeypatch.setattr(cub200, "COUNTS", {"train": (6, 3), "test": (4, 1)})
    with pytest.raises(
        ValueError, match=r"1 training classes with a single image.*: 003\.Sooty_Albatross"
    ):
        load(birds)
    assert load(birds, training=False).train.num_classes == 3
    with pytest.warns(UserWarning, match=r"left out 1 training classes") as reported:
        assert load(birds, skip_invalid=True).train.num_classes == 2
    assert reported[0].filename == __file__


def test_says_what_is_wanted_where_nothing_is(tmp_path):
    with pytest.raises(ValueError, match=r"'cub200' needs `data_dir`.*images\.txt.*=None"):
        load(None)
    with pytest.raises(FileNotFoundError, match=r"CUB_200_2011\.tgz.*There is no .*/missing"):
        load(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match=r"must have .*/images\.txt.*CUB_200_2011\.tgz"):
        load(tmp_path)


def test_the_published_counts_are_of_the_whole_set():
    assert cub200.COUNTS == {"train": (5864, 100), "test": (5924, 100)}
    assert np.sum(list(cub200.COUNTS.values()), axis=0).tolist() == [11788, 200]
