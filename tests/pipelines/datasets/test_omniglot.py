import numpy as np
import pytest

import pipelines


@pytest.mark.data
def test_alphabets_of_the_test_set_are_unseen(data_folder):
    omniglot = pipelines.load("omniglot", data_dir=data_folder / "tfds")
    assert (omniglot.train.num_classes, omniglot.test.num_classes) == (964, 659)
    for split in (omniglot.train, omniglot.test):
        assert set(np.unique(split.labels, return_counts=True)[1]) == {20}
        assert split.images.shape[1:] == omniglot.image_size == (28, 28, 1)
        assert split.images.mean() < 64  # strokes are white
    names = [
        {split.class_names[label].split("_")[0] for label in np.unique(split.labels)}
        for split in (omniglot.train, omniglot.test)
    ]
    assert names[0]
    assert not set(omniglot.train.labels) & set(omniglot.test.labels)


def test_says_how_to_prepare_what_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"tfds build omniglot --data_dir {tmp_path}"):
        pipelines.load("omniglot", data_dir=tmp_path)
    assert not list(tmp_path.iterdir())
