import pytest

from pipelines import load


@pytest.fixture
def birds(small):
    return small("cub200")


def test_the_first_classes_train(birds):
    dataset = load("cub200", birds)
    assert dataset.train.labels.tolist() == [1, 1, 1, 2, 2]
    assert dataset.train.names == ["001.Black_footed_Albatross", "002.Laysan_Albatross"]
    for split in (dataset.train, dataset.test):
        for path, label in zip(split.images, split.labels.tolist(), strict=True):
            assert path.startswith(str(birds / "images" / split.class_names[label]))


def test_rows_are_found_by_their_numbers_not_by_their_order(birds):
    for file in ("image_class_labels.txt", "bounding_boxes.txt"):
        lines = (birds / file).read_text().splitlines()
        (birds / file).write_text("\n".join(reversed(lines)))
    dataset = load("cub200", birds, boxes="annotated")
    assert dataset.train.labels.tolist() == [1, 1, 1, 2, 2]
    assert dataset.train.boxes[:2].tolist() == [[1, 2, 8, 4], [2, 2, 9, 5]]


def test_boxes_are_left_upper_width_and_height_cut_to_the_image(birds):
    boxes = load("cub200", birds, boxes="annotated").both().boxes
    assert boxes.tolist() == [[i, 2, i + 7, min(2 + i + 1, 16)] for i in range(1, 11)]
