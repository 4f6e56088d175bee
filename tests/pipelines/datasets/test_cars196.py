import re

import archives
import numpy as np
import pytest
from scipy.io import savemat

import pipelines
from pipelines.datasets import cars196

NAMES = ["AM General Hummer SUV 2000", "Acura RL Sedan 2012", "Audi TT", "Fisker Karma Sedan 2012"]
# class, whether to test a classifier on, box
CARS = [
    (1, 0, (2, 3, 12, 9)),
    (1, 1, (1, 1, 20, 16)),
    (2, 0, (4, 4, 9, 9)),
    (2, 1, (3, 3, 22, 17)),
    (3, 0, (1, 2, 3, 4)),
    (4, 0, (5, 6, 7, 8)),
    (4, 1, (9, 10, 11, 12)),
]
COUNTS = {"train": (4, 2), "test": (3, 2)}


@pytest.fixture(autouse=True)
def four_classes(monkeypatch):
    monkeypatch.setattr(cars196, "COUNTS", COUNTS)
    monkeypatch.setattr(cars196, "TRAINED", 2)


@pytest.fixture
def merged(tmp_path):
    return archives.write_merged_cars(tmp_path, CARS, NAMES)


@pytest.fixture
def divided(tmp_path):
    return archives.write_divided_cars(tmp_path, CARS, NAMES)


def load(folder, **options):
    return pipelines.load("cars196", data_dir=folder, **options)


def test_the_first_classes_of_the_merged_set_train(merged):
    dataset = load(merged)
    assert dataset.train.labels.tolist() == [1, 1, 2, 2]
    assert dataset.test.labels.tolist() == [3, 4, 4]
    assert dataset.train.names == NAMES[:2]
    assert dataset.test.names == NAMES[2:]
    assert dataset.train.images.tolist() == [
        str(merged / "car_ims" / f"00000{i}.jpg") for i in (1, 2, 3, 4)
    ]
    assert dataset.train.boxes is None


@pytest.mark.parametrize("parent", [False, True])
def test_the_parts_of_a_classifier_are_put_together(divided, parent):
    dataset = load(divided.parent if parent else divided, boxes="annotated")
    assert sorted(dataset.train.labels.tolist()) == [1, 1, 2, 2]
    assert sorted(dataset.test.labels.tolist()) == [3, 4, 4]
    assert dataset.test.names == NAMES[2:]
    for split in (dataset.train, dataset.test):
        for path, label, box in zip(split.images, split.labels, split.boxes, strict=True):
            part, image = path.split("/")[-2:]
            of_part = [car for car in CARS if car[1] == (part == "cars_test")]
            expected = of_part[int(image[:5]) - 1]
            assert label == expected[0]
            assert box.tolist() == np.minimum(expected[2], [20, 16, 20, 16]).tolist()


def test_the_test_labels_may_lie_in_the_devkit(divided):
    name = "cars_test_annos_withlabels.mat"
    (divided / name).rename(divided / "devkit" / name)
    assert len(load(divided).both().labels) == len(CARS)


def test_boxes_are_cut_to_their_images(merged):
    dataset = load(merged, boxes="annotated")
    assert dataset.train.boxes.tolist() == [
        [2, 3, 12, 9],
        [1, 1, 20, 16],
        [4, 4, 9, 9],
        [3, 3, 20, 16],
    ]
    batch = next(iter(pipelines.evaluation_batches(dataset.train, (8, 8, 3))))
    assert batch.shape == (4, 8, 8, 3)


def test_test_labels_are_wanted(divided):
    (divided / "cars_test_annos_withlabels.mat").unlink()
    message = r"Cars196 must have .*cars_test_annos_withlabels\.mat.*car_devkit\.tgz"
    with pytest.raises(FileNotFoundError, match=message):
        load(divided)


@pytest.mark.parametrize("file", ["devkit/cars_train_annos.mat", "devkit/cars_meta.mat"])
def test_names_a_missing_file(divided, file):
    (divided / file).unlink()
    with pytest.raises(FileNotFoundError, match=re.escape(f"must have {divided}/{file}")):
        load(divided.parent)


def test_names_a_file_that_is_cut_off_or_another(merged, divided):
    path = merged / "cars_annos.mat"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cars_annos\.mat cannot be read .*cut off"):
        load(merged)
    path.write_text("no MATLAB file")
    with pytest.raises(ValueError, match=r"cars_annos\.mat cannot be read"):
        load(merged)
    savemat(path, {"other": 1})
    with pytest.raises(ValueError, match=r"cars_annos\.mat must have `annotations`\."):
        load(merged)
    without_labels = divided / "devkit" / "cars_test_annos_nolabels.mat"
    without_labels.rename(divided / "cars_test_annos_withlabels.mat")
    message = r"withlabels\.mat must have `class` in `annotations`"
    with pytest.raises(ValueError, match=message):
        load(divided)


def test_rejects_other_counts_than_published(merged, monkeypatch):
    monkeypatch.setattr(cars196, "COUNTS", {"train": (4, 2), "test": (4, 2)})
    message = "test: 3 images of 2 classes where 4 images of 2 classes are published"
    with pytest.raises(ValueError, match=message):
        load(merged)
    with pytest.warns(UserWarning, match="not comparable"):
        load(merged, skip_invalid=True)


def test_says_what_is_wanted_where_nothing_is(tmp_path):
    with pytest.raises(ValueError, match=r"'cars196' needs `data_dir`.*cars_annos\.mat.*=None"):
        load(None)
    with pytest.raises(FileNotFoundError, match=r"cars_annos\.mat or .*/devkit or .*devkit\.tgz"):
        load(tmp_path)


def test_the_published_counts_are_of_the_whole_set():
    from importlib import reload

    counts = reload(cars196).COUNTS
    assert counts == {"train": (8054, 98), "test": (8131, 98)}
    assert np.sum(list(counts.values()), axis=0).tolist() == [16185, 196]
