import warnings

import numpy as np
import pytest
from PIL import Image

import pipelines
from pipelines.datasets import glyphs


def write_images(folder, classes):
    rng = np.random.default_rng(0)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            picture = rng.integers(0, 256, (10, 12, 3)).astype("uint8")
            Image.fromarray(picture).save(folder / name / f"{number}.jpg")
    return folder


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ValueError, match=r"Unknown dataset 'glyps'. Did you mean 'glyphs'\? Avail"):
        pipelines.load("glyps")


@pytest.mark.parametrize("name", ["glyphs", "digits"])
def test_built_in_sets_refuse_a_folder(name, tmp_path):
    with pytest.raises(ValueError, match=f"dataset '{name}' is built in. Received: data_dir="):
        pipelines.load(name, data_dir=str(tmp_path))


def test_digits_are_split_by_digit():
    digits = pipelines.load("digits")
    assert digits.train.images.shape == (901, 8, 8, 1)
    assert digits.train.images.max() == 255
    assert set(digits.train.labels) == set(range(5))
    assert set(digits.test.labels) == set(range(5, 10))


@pytest.fixture(scope="module")
def characters():
    return pipelines.load("glyphs")


def test_glyphs_are_many_classes_in_many_faces(characters):
    for split in (characters.train, characters.test):
        assert split.num_classes > 900
        counts = np.unique(split.labels, return_counts=True)[1]
        assert counts.min() >= glyphs.LEAST_FACES
        assert counts.max() <= len(glyphs.FACES)
        assert split.images.shape[1:] == (28, 28, 1)
        assert (split.images.reshape(len(split.images), -1).max(axis=1) > 0).all()
    assert not np.intersect1d(characters.train.labels, characters.test.labels).size


def test_glyphs_of_one_shape_are_one_class(characters):
    assert "AΑА" in characters.train.class_names.values()  # Latin, Greek, Cyrillic
    drawn = {}
    for split in (characters.train, characters.test):
        for image, label in zip(split.images, split.labels, strict=True):
            assert drawn.setdefault(image.tobytes(), label) == label


def test_glyphs_are_the_same_every_time(characters):
    again = pipelines.load("glyphs")
    np.testing.assert_array_equal(again.test.images, characters.test.images)
    np.testing.assert_array_equal(again.test.labels, characters.test.labels)


def test_a_folder_is_split_by_half_of_its_sorted_classes(tmp_path):
    write_images(tmp_path, {"d": 2, "a": 3, "c": 1, "b": 2, "e": 4})
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "notes.txt").write_text("not a class")
    (tmp_path / "a" / ".DS_Store").write_bytes(b"junk")
    dataset = pipelines.load("folder", data_dir=str(tmp_path))
    assert dataset.train.class_names == dict(enumerate("abcde"))
    assert sorted(dataset.train.labels) == [0, 0, 0, 1, 1]
    assert sorted(dataset.test.labels) == [2, 3, 3, 4, 4, 4, 4]
    for split in (dataset.train, dataset.test):
        for path, label in zip(split.images, split.labels, strict=True):
            assert path.split("/")[-2] == split.class_names[label]


def test_a_folder_names_the_images_that_cannot_be_read(tmp_path):
    write_images(tmp_path, {"a": 3, "b": 3})
    (tmp_path / "a" / "empty.jpg").write_bytes(b"")
    whole = (tmp_path / "b" / "0.jpg").read_bytes()
    (tmp_path / "b" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    message = r"2 images that cannot be read: .*empty.jpg \(0 bytes\), .*cut.jpg .*skip_invalid"
    with pytest.raises(ValueError, match=message):
        pipelines.load("folder", data_dir=tmp_path)
    with pytest.warns(UserWarning, match="left out 2 images that cannot be read: .*empty.jpg"):
        dataset = pipelines.load("folder", data_dir=tmp_path, skip_invalid=True)
    assert len(dataset.train.labels) == len(dataset.test.labels) == 3


def test_a_folder_names_training_classes_with_one_image(tmp_path):
    write_images(tmp_path, {"a": 2, "b": 1, "c": 1, "d": 2})
    with pytest.raises(ValueError, match="1 training classes with a single image.*: b. Mend them"):
        pipelines.load("folder", data_dir=tmp_path)
    with pytest.warns(UserWarning, match="left out 1 training classes with a single image"):
        dataset = pipelines.load("folder", data_dir=tmp_path, skip_invalid=True)
    assert set(dataset.train.labels) == {0}
    assert set(dataset.test.labels) == {2, 3}


def test_a_good_folder_warns_of_nothing(tmp_path):
    write_images(tmp_path, {"a": 2, "b": 2})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipelines.load("folder", data_dir=tmp_path)


def test_a_folder_that_is_none_gets_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="dataset 'folder' needs a folder"):
        pipelines.load("folder")
    with pytest.raises(FileNotFoundError, match="there is no folder .*missing"):
        pipelines.load("folder", data_dir=tmp_path / "missing")
    with pytest.raises(ValueError, match=r"two or more sub-folders .* Found: 0"):
        pipelines.load("folder", data_dir=tmp_path)
    write_images(tmp_path, {"only": 2})
    (tmp_path / "without_images").mkdir()
    with pytest.raises(ValueError, match=r"two or more sub-folders .* Found: 1"):
        pipelines.load("folder", data_dir=tmp_path)
    file = tmp_path / "only" / "0.jpg"
    with pytest.raises(ValueError, match="it is a file"):
        pipelines.load("folder", data_dir=file)


def test_omniglot_says_how_to_prepare_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="by: tfds build omniglot --data_dir"):
        pipelines.load("omniglot", data_dir=str(tmp_path))


@pytest.mark.data
def test_omniglot_has_its_classes(data_folder):
    omniglot = pipelines.load("omniglot", data_dir=str(data_folder / "tfds"))
    assert (omniglot.train.num_classes, len(omniglot.train.labels)) == (964, 19_280)
    assert (omniglot.test.num_classes, len(omniglot.test.labels)) == (659, 13_180)
    assert omniglot.train.images.shape[1:] == (28, 28, 1)
    assert omniglot.train.images.mean() < 64  # white strokes on black


@pytest.mark.data
def test_a_folder_of_cars_has_its_classes(data_folder):
    cars = pipelines.load("folder", data_dir=data_folder / "cars196")
    assert (cars.train.num_classes, cars.test.num_classes) == (98, 98)
    assert len(cars.train.labels) + len(cars.test.labels) == 8_144
    assert cars.train.class_names[0] == "001.AM_General_Hummer_SUV_2000"
