"""What all published datasets have in common: their folders, lists, counts and errors."""

import re

import archives
import pytest

import pipelines
from pipelines.datasets import WITH_BOXES, vehicle_id

every = pytest.mark.parametrize("name", archives.SMALL)
LABELS = {  # of training, test and gallery
    "cars196": [[1, 2, 1, 2], [3, 4, 4]],
    "cub200": [[1, 1, 1, 2, 2], [3, 4, 4, 4, 4]],
    "in_shop": [[0, 0], [1, 2], [1, 1, 2]],
    "stanford_online_products": [[1, 1, 2, 2], [3, 3, 4]],
    "vehicle_id": [[30, 30, 2, 2], [9, 9, 9, 5, 5, 5], [9, 5]],
}


def load(name, folder, **options):
    boxes = "annotated" if name in WITH_BOXES else None
    return pipelines.load(name, data_dir=folder, **{"boxes": boxes, **options})


def test_kinds_of_products_are_the_super_classes(small):
    root = small("stanford_online_products")
    dataset = load("stanford_online_products", root)
    assert dataset.train.super_labels.tolist() == [1, 1, 4, 4]
    assert dataset.test.super_labels.tolist() == [4, 4, 1]
    assert dataset.test.images[2] == str(root / "bicycle_final" / "111085124_7.JPG")


@every
def test_the_folder_or_its_parent_is_loaded(name, small):
    root = small(name)
    for folder in (root, str(root.parent)):
        dataset = load(name, folder)
        assert dataset.name == name
        assert [sorted(split.labels) for split in dataset.splits.values()] == [
            sorted(labels) for labels in LABELS[name]
        ]
        assert dataset.image_size == (224, 224, 3)
    assert all(split.boxes is None for split in load(name, root, boxes=None).splits.values())


@every
def test_says_what_is_wanted_where_nothing_is(name, tmp_path):
    module = archives.SMALL[name][1]
    source = re.escape(module.ARCHIVE.source)
    with pytest.raises(ValueError, match=f"{name!r} needs `data_dir`.*{source}.*data_dir=None"):
        load(name, None)
    with pytest.raises(FileNotFoundError, match=rf"{source}; there is no .*/missing"):
        load(name, tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match=rf"{name!r} must have .*{tmp_path}/.*{source}"):
        load(name, tmp_path)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cars196", "devkit/cars_meta.mat"),  # a file of MATLAB
        ("cub200", "images.txt"),  # that the folder is known by
        ("stanford_online_products", "Ebay_train.txt"),  # another that it is known by is there
        ("in_shop", "Anno/list_bbox_inshop.txt"),
    ],
)
def test_names_a_missing_file_and_its_archive(name, file, small):
    root = small(name)
    (root / file).rename(root / "renamed")
    message = rf"must have .*{re.escape(file)}.* Source: "
    with pytest.raises(FileNotFoundError, match=message):
        load(name, root)


@every
def test_other_counts_than_published_are_rejected_or_reported(name, small, monkeypatch):
    root, module = small(name), archives.SMALL[name][1]
    if name == "vehicle_id":
        monkeypatch.setitem(vehicle_id.TESTED, 800, (9, 2))
        found = "8 images where 9"
    else:
        images, classes = module.COUNTS["test"]
        monkeypatch.setitem(module.COUNTS, "test", (images + 1, classes))
        found = f"{images} images where {images + 1}"
    message = rf"{name!r} differs from the published one \(test: {found} are published\)"
    with pytest.raises(ValueError, match=rf"{message}.*--skip_invalid true$"):
        load(name, root)
    with pytest.warns(UserWarning, match="are published.: its scores are not comparable") as warned:
        load(name, root, skip_invalid=True)
    assert warned[0].filename == __file__


def test_a_list_is_text_with_a_line_for_every_image(small):
    root = small("cub200")
    path, before = root / "image_class_labels.txt", load("cub200", root)
    whole = path.read_text()
    path.write_bytes(b"\xef\xbb\xbf" + whole.encode())  # the mark of UTF-8
    assert load("cub200", root).train.labels.tolist() == before.train.labels.tolist()
    for content, message in (
        (whole.replace("3 1\n", "3 one\n"), r"labels\.txt, line 3 must be `id class`; .*: '3 one'"),
        (whole[: whole.index("8 4")], "a line for every image; .*without=3, first=8"),
        ("", r"labels\.txt must hold a list; .*lines=0"),
        ("\xff", r"labels\.txt must be a text file"),
    ):
        path.write_text(content, encoding="latin-1")
        with pytest.raises(ValueError, match=message):
            load("cub200", root)


def test_images_that_are_missing_or_cannot_be_read_are_named_or_left_out(small, recwarn):
    root = small("cub200")
    (root / "images" / "001.Black_footed_Albatross" / "Photo_1_3.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 10 images that are missing, .*Photo_1_3"):
        load("cub200", root)
    (root / "images" / "004.Groove_billed_Ani" / "Photo_0_4.jpg").write_bytes(b"cut")
    dataset = load("cub200", root, skip_invalid=True)
    assert dataset.train.boxes[:, 0].tolist() == [1, 3, 4, 5]  # those of the images left
    assert len(dataset.test.labels) == 4
    reported = [str(warning.message) for warning in recwarn]
    assert re.match(r"left out 1 of 10 images that are missing, .*Photo_1_3\.jpg$", reported[0])
    assert re.match(r"left out 1 images that cannot be read: .*\(3 bytes, .*\)$", reported[1])
    assert {warning.filename for warning in recwarn} == {__file__}


def test_only_some_have_boxes():
    message = "can be `annotated` for cars196, csv, cub200, in_shop, .*dataset='vehicle_id'"
    with pytest.raises(ValueError, match=message):
        pipelines.load("vehicle_id", boxes="annotated")
