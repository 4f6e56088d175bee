import archives
import pytest

import pipelines
from pipelines.datasets import in_shop

IMAGES = [
    ("WOMEN/Dresses/id_00000002/02_1_front.jpg", "train", (3, 2, 18, 12)),
    ("WOMEN/Dresses/id_00000002/02_2_side.jpg", "train", (1, 1, 5, 6)),
    ("MEN/Denim/id_00000007/01_1_front.jpg", "query", (0, 0, 21, 17)),
    ("MEN/Denim/id_00000007/01_2_side.jpg", "gallery", (4, 4, 8, 8)),
    ("WOMEN/Dresses/id_00000007/02_1_front.jpg", "gallery", (5, 4, 8, 8)),
    ("WOMEN/Dresses/id_00000011/01_1_front.jpg", "query", (6, 4, 8, 8)),
    ("WOMEN/Dresses/id_00000011/01_7_additional.jpg", "gallery", (7, 4, 8, 8)),
]
COUNTS = {"train": (2, 1), "test": (2, 2), "gallery": (3, 2)}


@pytest.fixture
def clothes(tmp_path, monkeypatch):
    """A small In-shop Clothes Retrieval Benchmark, its `Img/img.zip` unpacked."""
    monkeypatch.setattr(in_shop, "COUNTS", COUNTS)
    return archives.write_clothes(tmp_path, IMAGES)


def load(folder, **options):
    return pipelines.load("in_shop", data_dir=folder, **options)


@pytest.mark.parametrize("parent", [False, True])
def test_queries_and_gallery_are_apart(clothes, parent):
    dataset = load(clothes.parent if parent else clothes)
    assert dataset.train.names == ["id_00000002"]
    assert dataset.test.names == dataset.gallery.names == ["id_00000007", "id_00000011"]
    folder = str(clothes / "Img" / "img")
    for split, part in (
        (dataset.train, "train"),
        (dataset.test, "query"),
        (dataset.gallery, "gallery"),
    ):
        assert split.images.tolist() == [
            f"{folder}/{image}" for image, of, _ in IMAGES if of == part
        ]
    assert len(dataset.both().labels) == len(IMAGES)


def test_the_kind_of_an_item_is_that_of_its_first_image(clothes):
    dataset = load(clothes)
    men, women = 0, 1
    assert dataset.train.super_labels.tolist() == [women, women]
    assert dataset.test.super_labels.tolist() == [men, women]
    assert dataset.gallery.super_labels.tolist() == [men, men, women]


def test_boxes_are_found_by_the_image_and_cut_to_it(clothes):
    dataset = load(clothes, boxes="annotated")
    assert dataset.train.boxes.tolist() == [[3, 2, 18, 12], [1, 1, 5, 6]]
    assert dataset.test.boxes.tolist() == [[0, 0, 20, 16], [6, 4, 8, 8]]
    assert dataset.gallery.boxes[:, 0].tolist() == [4, 5, 7]


def test_the_folders_may_be_left_out(clothes):
    for file in ("Eval/list_eval_partition.txt", "Anno/list_bbox_inshop.txt", "Img/img"):
        (clothes / file).rename(clothes / file.split("/")[1])
    dataset = load(clothes, boxes="annotated")
    assert dataset.train.images[0].startswith(str(clothes / "img" / "WOMEN"))


@pytest.mark.parametrize(
    "file", ["Eval/list_eval_partition.txt", "Anno/list_bbox_inshop.txt", "Img/img"]
)
def test_names_what_is_missing(clothes, file):
    (clothes / file).rename(clothes / "other")
    message = rf"{file}.* Source: the In-shop Clothes .*Img/img\.zip"
    with pytest.raises(FileNotFoundError, match=message):
        load(clothes, boxes="annotated")


def test_names_an_image_without_a_box(clothes):
    path = clothes / "Anno" / "list_bbox_inshop.txt"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    load(clothes)
    message = r"list_bbox_inshop\.txt must have a line for every image; .*without=1, .*02_1_front"
    with pytest.raises(ValueError, match=message):
        load(clothes, boxes="annotated")


def test_rejects_another_word_for_a_part(clothes):
    path = clothes / "Eval" / "list_eval_partition.txt"
    path.write_text(path.read_text().replace("gallery", "galery"))
    with pytest.raises(ValueError, match=r"give train or query or gallery .*Received: 'galery'"):
        load(clothes)


def test_rejects_other_counts_than_published(clothes, monkeypatch):
    monkeypatch.setattr(in_shop, "COUNTS", {**COUNTS, "gallery": (4, 2)})
    with pytest.raises(ValueError, match="gallery: 3 images of 2 classes where 4 images"):
        load(clothes)


def test_the_published_counts():
    counts = in_shop.COUNTS
    assert sum(images for images, _ in counts.values()) == 52712
    assert counts["train"][1] + counts["test"][1] == 7982
    assert counts["gallery"] == (12612, 3985)
