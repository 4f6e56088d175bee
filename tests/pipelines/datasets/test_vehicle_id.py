import archives
import numpy as np
import pytest

from pipelines import load


@pytest.fixture
def vehicles(small):
    return small("vehicle_id")


def test_one_image_of_each_vehicle_is_the_gallery_every_time(vehicles):
    dataset, again = load("vehicle_id", vehicles), load("vehicle_id", vehicles)
    found = dict(zip(dataset.test.images, dataset.test.labels, strict=True))
    found.update(zip(dataset.gallery.images, dataset.gallery.labels, strict=True))
    assert found == {str(vehicles / "image" / f"{i}.jpg"): n for i, n in archives.TESTED}
    np.testing.assert_array_equal(dataset.gallery.images, again.gallery.images)


def test_other_sizes_have_other_lists(vehicles):
    dataset = load("vehicle_id_1600", vehicles)
    assert dataset.name == "vehicle_id_1600"
    assert sorted(dataset.gallery.labels.tolist()) == [5, 7, 9]
    assert 7 not in dataset.test.labels
    with pytest.raises(FileNotFoundError, match=r"'vehicle_id' must have .*list_2400\.txt\. Sou"):
        load("vehicle_id_2400", vehicles)


def test_vehicles_of_known_models_train_by_them(vehicles):
    dataset = load("vehicle_id_models", vehicles)
    assert dataset.name == "vehicle_id_models"
    assert dataset.train.labels.tolist() == [2, 2]
    assert dataset.train.super_labels.tolist() == [40, 40]
    assert dataset.test.super_labels is None
    assert sorted(dataset.gallery.labels.tolist()) == [5, 9]
    (vehicles / "attribute" / "model_attr.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"must have .*model_attr\.txt\. Source: V"):
        load("vehicle_id_models", vehicles)
    assert load("vehicle_id", vehicles).train.super_labels is None
