import re

import archives
import numpy as np
import pytest

import pipelines
from pipelines.datasets import vehicle_id

TRAIN = [("0000001", 30), ("0000002", 30), ("0000003", 2), ("0000004", 2)]
MODELS = {5: 17, 2: 40, 77: 3}
TEST = [(f"{100 + i:07d}", vehicle) for i, vehicle in enumerate([9, 9, 9, 5, 5, 9, 5, 5])]
LISTS = {"train_list": TRAIN, "test_list_800": TEST, "test_list_1600": [*TEST, ("0000200", 7)]}


@pytest.fixture
def vehicles(tmp_path, monkeypatch):
    """The folder that a small VehicleID_V1.0 unpacks to."""
    monkeypatch.setattr(vehicle_id, "TRAINED", (4, 2))
    monkeypatch.setattr(vehicle_id, "TESTED", {800: (8, 2), 1600: (9, 3), 2400: (10, 4)})
    return archives.write_vehicles(tmp_path, LISTS, MODELS)


def load(folder, name="vehicle_id", **options):
    return pipelines.load(name, data_dir=folder, **options)


@pytest.mark.parametrize("parent", [False, True])
def test_one_image_of_each_vehicle_is_the_gallery(vehicles, parent):
    dataset = load(vehicles.parent if parent else vehicles)
    assert dataset.name == "vehicle_id"
    assert dataset.train.labels.tolist() == [30, 30, 2, 2]
    assert sorted(dataset.gallery.labels.tolist()) == [5, 9]
    assert sorted(dataset.test.labels.tolist()) == [5, 5, 5, 9, 9, 9]
    found = dict(zip(dataset.test.images, dataset.test.labels, strict=True))
    found.update(zip(dataset.gallery.images, dataset.gallery.labels, strict=True))
    assert found == {str(vehicles / "image" / f"{i}.jpg"): vehicle for i, vehicle in TEST}


def test_the_gallery_is_the_same_every_time(vehicles):
    first, second = load(vehicles), load(vehicles)
    np.testing.assert_array_equal(first.gallery.images, second.gallery.images)


def test_other_sizes_have_other_lists(vehicles):
    dataset = load(vehicles, "vehicle_id_1600")
    assert dataset.name == "vehicle_id_1600"
    assert sorted(dataset.gallery.labels.tolist()) == [5, 7, 9]
    assert 7 not in dataset.test.labels


@pytest.mark.parametrize("file", ["train_list", "test_list_2400"])
def test_names_a_missing_list(vehicles, file):
    path = vehicles / "train_test_split" / f"{file}.txt"
    path.unlink(missing_ok=True)
    message = re.escape(f"VehicleID must have {path}. Source: VehicleID_V1.0")
    with pytest.raises(FileNotFoundError, match=message):
        load(vehicles, "vehicle_id_2400")


def test_rejects_other_counts_than_published(vehicles, monkeypatch):
    monkeypatch.setitem(vehicle_id.TESTED, 800, (9, 2))
    with pytest.raises(ValueError, match=r"'vehicle_id' differs .*test: 8 images of 2 classes wh"):
        load(vehicles)
    with pytest.warns(UserWarning, match="not comparable"):
        load(vehicles, skip_invalid=True)


def test_names_the_line_that_is_cut_off(vehicles):
    path = vehicles / "train_test_split" / "train_list.txt"
    path.write_text(path.read_text()[:-3])
    with pytest.raises(ValueError, match=r"train_list\.txt, line 4 must be `image vehicle`"):
        load(vehicles)


def test_a_vehicle_to_train_and_to_test_on_is_rejected(vehicles):
    path = vehicles / "train_test_split" / "train_list.txt"
    path.write_text(path.read_text().replace(" 30", " 9"))
    with pytest.raises(ValueError, match=r"train and test must not share classes\. .*\[9\]"):
        load(vehicles)


def test_vehicles_of_known_models_train_by_them(vehicles):
    dataset = load(vehicles, "vehicle_id_models")
    assert dataset.name == "vehicle_id_models"
    assert dataset.train.labels.tolist() == [2, 2]
    assert dataset.train.super_labels.tolist() == [40, 40]
    assert dataset.test.super_labels is None
    assert sorted(dataset.gallery.labels.tolist()) == [5, 9]
    (vehicles / "attribute" / "model_attr.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"must have .*model_attr\.txt\. Source: V"):
        load(vehicles, "vehicle_id_models")
    assert load(vehicles).train.super_labels is None
