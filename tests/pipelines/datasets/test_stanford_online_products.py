import archives
import pytest

import pipelines
from pipelines.datasets import stanford_online_products

ROWS = {
    "train": [(1, 1, "bicycle"), (2, 1, "bicycle"), (3, 2, "chair"), (4, 2, "chair")],
    "test": [(5, 3, "chair"), (6, 3, "chair"), (7, 4, "bicycle")],
}


@pytest.fixture
def products(tmp_path, monkeypatch):
    """The folder that a small Stanford_Online_Products.zip unpacks to."""
    counts = {"train": (4, 2), "test": (3, 2)}
    monkeypatch.setattr(stanford_online_products, "COUNTS", counts)
    return archives.write_products(tmp_path, ROWS)


def load(folder, **options):
    return pipelines.load("stanford_online_products", data_dir=folder, **options)


@pytest.mark.parametrize("parent", [False, True])
def test_the_lists_are_the_split(products, parent):
    dataset = load(products.parent if parent else products)
    assert dataset.train.labels.tolist() == [1, 1, 2, 2]
    assert dataset.test.labels.tolist() == [3, 3, 4]
    assert dataset.train.super_labels.tolist() == [1, 1, 4, 4]
    assert dataset.test.super_labels.tolist() == [4, 4, 1]
    assert dataset.test.images[2] == str(products / "bicycle_final" / "111085124_7.JPG")


@pytest.mark.parametrize("part", ["train", "test"])
def test_names_a_missing_list(products, part):
    (products / f"Ebay_{part}.txt").unlink()
    message = rf"Ebay_{part}\.txt.* Source: Stanford_Online_Products\.zip"
    with pytest.raises(FileNotFoundError, match=message):
        load(products)


def test_names_the_line_where_a_list_is_cut_off(products):
    path = products / "Ebay_train.txt"
    path.write_text(path.read_text()[:-30])
    message = r"Ebay_train\.txt, line 5 must be `image_id class_id super_class_id path`"
    with pytest.raises(ValueError, match=message):
        load(products)


def test_a_product_that_loses_images_is_left_out(products):
    (products / "chair_final" / "111085122_4.JPG").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 7 images that are missing: .*_4\.JPG"):
        load(products)
    with (
        pytest.warns(UserWarning, match="left out 1 of 7 images"),
        pytest.warns(UserWarning, match=r"left out 1 training classes .*: 2$"),
    ):
        assert load(products, skip_invalid=True).train.labels.tolist() == [1, 1]


def test_has_no_boxes(products):
    message = r"'stanford_online_products' has no boxes.*cars196, csv, cub200, in_shop, tfds:NAME"
    with pytest.raises(ValueError, match=message):
        load(products, boxes="annotated")


def test_says_what_is_wanted_where_nothing_is(tmp_path):
    with pytest.raises(ValueError, match=r"needs `data_dir`.*Ebay_train\.txt or Ebay_test\.txt"):
        load(None)
    with pytest.raises(FileNotFoundError, match=r"Ebay_train\.txt.*Stanford_Online_Products\.zip"):
        load(tmp_path)


def test_the_published_counts():
    counts = {"train": (59551, 11318), "test": (60502, 11316)}
    assert counts == stanford_online_products.COUNTS
