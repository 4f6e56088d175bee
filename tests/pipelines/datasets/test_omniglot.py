import numpy as np
import pytest

import pipelines


@pytest.mark.slow
@pytest.mark.data
def test_has_20_drawings_of_964_characters_and_659_others(data_folder):
    omniglot = pipelines.load("omniglot", data_dir=data_folder / "tfds")
    assert (omniglot.train.num_classes, omniglot.test.num_classes) == (964, 659)
    for split in (omniglot.train, omniglot.test):
        assert set(np.unique(split.labels, return_counts=True)[1]) == {20}
        assert split.images.shape[1:] == omniglot.image_size == (28, 28, 1)
        assert split.images.mean() < 64  # strokes are white
    assert not set(omniglot.train.labels) & set(omniglot.test.labels)
    alphabets = [set(split.super_labels) for split in (omniglot.train, omniglot.test)]
    assert [len(ids) for ids in alphabets] == [30, 20]
    assert not set.intersection(*alphabets)
    alphabet_of = dict(zip(omniglot.train.labels, omniglot.train.super_labels, strict=True))
    for images, labels in (
        pipelines.group_batches(omniglot.train, 20, 100).take(20).as_numpy_iterator()
    ):
        assert images.shape == (len(labels), 28, 28, 1)
        assert 90 <= len(labels) <= 100
        assert np.unique(labels, return_counts=True)[1].min() >= 2
        assert len({alphabet_of[label] for label in labels}) == 2
