"""A plain Keras model of which a loss is an attribute trains and saves what the loss learns."""

import keras
import numpy as np
import pytest
from keras import ops

from tfdml import losses

LABELS = np.repeat(np.arange(4), 3)


def values(loss):
    return [ops.convert_to_numpy(value) for layer in loss.layers for value in layer.variables]


pytestmark = pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer")


class WithLoss(keras.Model):
    """A plain Keras model of which a loss is an attribute."""

    def __init__(self, loss):
        super().__init__()
        self.dense, self.metric_loss = keras.layers.Dense(6), loss

    def call(self, inputs):
        return self.dense(inputs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return self.metric_loss(y, y_pred, training=training)


def test_a_plain_model_trains_and_saves_a_loss_that_is_its_attribute(rng, tmp_path):
    batch, models = rng.normal(size=(len(LABELS), 6)).astype("float32"), []
    base = {"name": "cosface", "num_classes": 4}
    for _ in range(2):
        models.append(WithLoss(losses.get("matryoshka", base=base, dims=(6, 2))))
        models[-1].metric_loss(LABELS, models[-1](batch))  # builds both
        models[-1].compile("adam", run_eagerly=True, jit_compile=False)
        models[-1].train_on_batch(batch, LABELS)
    trained, restored = models
    [before] = values(trained.metric_loss)
    trained.train_on_batch(batch, LABELS)
    [after] = values(trained.metric_loss)
    assert np.abs(after - before).min() > 0
    assert [variable.path for variable in trained.trainable_variables[2:]] == [
        "class_proxies/proxies"
    ]
    trained.save_weights(tmp_path / "model.weights.h5")
    restored.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(values(restored.metric_loss)[0], after)
