import archives
import numpy as np
import pytest
from scipy.io import savemat

from pipelines import load


@pytest.fixture
def merged(small, tmp_path):
    small("cars196")
    (tmp_path / "merged").mkdir()
    return archives.write_merged_cars(tmp_path / "merged")


def test_the_first_classes_of_the_merged_set_train(merged):
    dataset = load("cars196", merged, boxes="annotated")
    assert dataset.train.labels.tolist() == [1, 1, 2, 2]
    assert dataset.test.labels.tolist() == [3, 4, 4]
    assert dataset.train.names == archives.CAR_NAMES[:2]
    assert dataset.test.names == archives.CAR_NAMES[2:]
    images = [str(merged / "car_ims" / f"00000{i}.jpg") for i in (1, 2, 3, 4)]
    assert dataset.train.images.tolist() == images
    cut = [[2, 3, 12, 9], [1, 1, 20, 16], [4, 4, 9, 9], [3, 3, 20, 16]]
    assert dataset.train.boxes.tolist() == cut


def test_the_parts_of_a_classifier_are_put_together(small):
    dataset = load("cars196", small("cars196"), boxes="annotated")
    assert dataset.test.names == archives.CAR_NAMES[2:]
    for split in (dataset.train, dataset.test):
        for path, label, box in zip(split.images, split.labels, split.boxes, strict=True):
            part, image = path.split("/")[-2:]
            cars = [car for car in archives.CARS if car[1] == (part == "cars_test")]
            expected = cars[int(image[:5]) - 1]
            assert label == expected[0]
            assert box.tolist() == np.minimum(expected[2], [20, 16, 20, 16]).tolist()


def test_names_a_file_that_is_cut_off_or_another(merged):
    path = merged / "cars_annos.mat"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=r"cars_annos\.mat cannot be read .*cut off"):
        load("cars196", merged)
    savemat(path, {"annotations": archives.structures(["class"], [(1,)])})
    with pytest.raises(ValueError, match=r"cars_annos\.mat cannot be read .*not the MATLAB"):
        load("cars196", merged)
