import pathlib

import numpy as np
import pytest
import tensorflow_datasets as tfds

import pipelines

SIZES = [(12, 20), (16, 8), (300, 200)]


class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A set of `images`, the names or number of `classes`, and `parts` of rows."""

    VERSION = tfds.core.Version("1.0.0")
    code_path = pathlib.Path(__file__)  # which TFDS does not find of a test

    def _info(self):
        features = {"image": self.images, "label": tfds.features.ClassLabel(**self.classes)}
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(features),
            supervised_keys=("image", "label"),
        )

    def _split_generators(self, manager):
        return {part: self._generate_examples(rows) for part, rows in self.parts}


class TinyDigits(Tiny):
    """Five classes of grey images of one size, in three splits and a part of one."""

    images, classes = tfds.features.Image(shape=(6, 5, 1)), {"num_classes": 5}
    parts = (("train", range(10)), ("validation", range(10, 12)), ("test", range(12, 16)))
    parts += (("small", range(4)),)

    def _generate_examples(self, rows):
        for i in rows:
            yield i, {"image": np.full((6, 5, 1), i, np.uint8), "label": -1 if i == 11 else i % 5}


class TinyPhotos(Tiny):
    """Two named classes of photographs of several sizes, in a single split."""

    images, classes = tfds.features.Image(encoding_format="png"), {"names": ["cat", "dog"]}
    parts = (("all_images", range(6)),)

    def _generate_examples(self, rows):
        for i in rows:
            yield i, {"image": np.full((*SIZES[i % 3], 3), i, np.uint8), "label": i // 3}


class TinyTexts(Tiny):
    """No images."""

    images, classes = tfds.features.Text(), {"num_classes": 2}
    parts = (("train", range(1)),)

    def _generate_examples(self, rows):
        yield 0, {"image": "no image", "label": 0}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    for builder in (TinyDigits, TinyPhotos, TinyTexts):
        builder(data_dir=folder).download_and_prepare()
    return folder


def load(name, folder, **options):
    return pipelines.load(f"tfds:{name}", data_dir=folder, **options)


def test_the_first_half_of_the_classes_of_all_splits_trains(prepared):
    dataset = load("tiny_digits", prepared)
    assert dataset.name == "tfds:tiny_digits"
    assert set(dataset.train.labels.tolist()) == {0, 1}
    assert set(dataset.test.labels.tolist()) == {2, 3, 4}
    both = dataset.both()
    assert both.images.shape == (15, *dataset.image_size) == (15, 6, 5, 1)
    values = both.images[:, 0, 0, 0]
    np.testing.assert_array_equal(values % 5, both.labels)
    assert sorted(values.tolist()) == [i for i in range(16) if i != 11]  # which has no label
    assert dataset.train.names == ["0", "1"]


def test_images_of_several_sizes_are_resized(prepared, options_read):
    dataset = load("tiny_photos", prepared)
    assert [options.autotune.enabled for options in options_read] == [False]
    assert dataset.train.images.shape == dataset.test.images.shape == (3, 256, 256, 3)
    assert dataset.image_size == (224, 224, 3)
    assert (dataset.train.names, dataset.test.names) == (["cat"], ["dog"])
    assert sorted(dataset.both().images[:, 100, 100, 0].tolist()) == [0, 1, 2, 3, 4, 5]


def test_rejects_what_are_no_labelled_images(prepared):
    with pytest.raises(
        ValueError, match=r"'tfds:tiny_texts' must have grey or RGB images .*'image': 'Text'"
    ):
        load("tiny_texts", prepared)


@pytest.mark.parametrize("name", ["tfds:tiny_digits", "omniglot"])
def test_nothing_is_downloaded(name, tmp_path):
    what = name.removeprefix("tfds:")
    with pytest.raises(FileNotFoundError, match=f"tfds build {what} --data_dir {tmp_path}$"):
        pipelines.load(name, data_dir=tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_unknown_set_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"cannot load 'tiny_digit' \(Dataset .* not found"):
        load("tiny_digit", tmp_path)
    with pytest.raises(ValueError, match=r"cannot load '' \(Parsing builder name"):
        load("", tmp_path)
