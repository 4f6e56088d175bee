import pytest
import tensorflow as tf


@pytest.fixture
def options_read(monkeypatch):
    """The options of each dataset that is read as NumPy arrays."""
    options = []
    as_numpy_iterator = tf.data.Dataset.as_numpy_iterator

    def recorded(dataset):
        options.append(dataset.options())
        return as_numpy_iterator(dataset)

    monkeypatch.setattr(tf.data.Dataset, "as_numpy_iterator", recorded)
    return options
