import archives
import pytest

from pipelines import load


@pytest.fixture
def clothes(small):
    return small("in_shop")


def test_queries_and_gallery_are_apart(clothes):
    dataset = load("in_shop", clothes)
    assert dataset.train.names == ["id_00000002"]
    assert dataset.test.names == dataset.gallery.names == ["id_00000007", "id_00000011"]
    splits = {"train": dataset.train, "query": dataset.test, "gallery": dataset.gallery}
    for part, split in splits.items():
        images = [image for image, word, _ in archives.CLOTHES if word == part]
        assert split.images.tolist() == [str(clothes / "Img" / "img" / image) for image in images]


def test_the_kind_of_an_item_is_that_of_its_first_image(clothes):
    men, women = 0, 1
    kinds = [split.super_labels.tolist() for split in load("in_shop", clothes).splits.values()]
    assert kinds == [[women, women], [men, women], [men, men, women]]


def test_boxes_are_found_by_the_image_and_cut_to_it(clothes):
    dataset = load("in_shop", clothes, boxes="annotated")
    assert dataset.train.boxes.tolist() == [[3, 2, 18, 12], [1, 1, 5, 6]]
    assert dataset.test.boxes.tolist() == [[0, 0, 20, 16], [6, 4, 8, 8]]
    assert dataset.gallery.boxes[:, 0].tolist() == [4, 5, 7]


def test_rejects_another_word_for_a_part(clothes):
    path = clothes / "Eval" / "list_eval_partition.txt"
    path.write_text(path.read_text().replace("gallery", "galery"))
    with pytest.raises(ValueError, match=r"one of train, query, gallery .*unknown=\['galery'\]"):
        load("in_shop", clothes)
