"""What a loss learned goes with it: with a copy, and with a Keras model of which it is a part."""

import copy
import pickle

import keras
import numpy as np
import pytest
from backend import slow_on_jax
from keras import ops

from tfdml import losses

LABELS = np.repeat(np.arange(4), 3)
DENSITIES = [0.1, 0.2, 0.3, 0.4]
OF_PROXIES = ("arcface", "cosface", "norm_softmax", "proxy_anchor", "proxy_nca", "soft_triple")
OPTIONS = {name: {"num_classes": 4} for name in (*OF_PROXIES, "sub_center_arcface")}
OPTIONS |= {
    "density": {"initial_density": DENSITIES},
    "matryoshka": {"base": {"name": "cosface", "num_classes": 4}, "dims": (6, 2)},
    "memory": {"base": "contrastive", "size": 40, "start_step": 0},
    "pddm": {"similarity": {"dropout": 0.5}},
    "recall_at_k": {"mix": 3},
    "regularized": {
        "base": "lmdm",
        "regularizer": {"name": "density", "initial_density": DENSITIES},
    },
    "sampled_classes": {"base": {"name": "arcface", "num_classes": 40}, "rate": 0.5},
    "weighted_sum": {
        "parts": {name: (2.0, {"num_classes": 4}) for name in ("arcface", "proxy_anchor")}
    },
}
COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda loss: pickle.loads(pickle.dumps(loss))}


def build(name):
    return losses.get(name, **OPTIONS.get(name, {}))


def by_default(names):
    """Parametrizes a test by all losses, those not among `names` slow."""
    cases = (
        pytest.param(name, marks=() if name in names else pytest.mark.slow)
        for name in losses.LOSSES
    )
    return pytest.mark.parametrize("name", cases)


def rows(rng, number=1):
    return rng.normal(size=(number, len(LABELS), 6)).astype("float32")


def values(loss):
    return [ops.convert_to_numpy(value) for layer in loss.layers for value in layer.variables]


@slow_on_jax
@by_default({"arcface", "density", "memory", "pddm", "recall_at_k", "weighted_sum"})
@pytest.mark.parametrize("way", COPIES)
def test_a_copy_goes_on_as_the_loss_does(name, way, rng):
    keras.utils.set_random_seed(0)
    loss, batches = build(name), rows(rng, 3)
    untrained = COPIES[way](loss)
    assert [layer.built for layer in untrained.layers] == [layer.built for layer in loss.layers]
    for batch in batches[:2]:
        loss(LABELS, batch, training=True)
    found = COPIES[way](loss)
    assert type(found) is type(loss)
    assert found.get_config().keys() == loss.get_config().keys()
    assert not {*map(id, found.layers)} & {*map(id, loss.layers)}
    for one, other in zip(values(found), values(loss), strict=True):
        np.testing.assert_array_equal(one, other)
    expected = float(loss(LABELS, batches[2], training=True))
    assert float(found(LABELS, batches[2], training=True)) == pytest.approx(expected, rel=1e-6)


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


class AddsLoss(keras.layers.Layer):
    def __init__(self, loss):
        super().__init__()
        self.metric_loss = loss

    def call(self, inputs, labels):
        self.add_loss(self.metric_loss(labels, inputs, training=True))
        return inputs


def test_a_plain_model_trains_and_saves_a_loss_that_is_its_attribute(rng, tmp_path):
    batch, models = rows(rng)[0], []
    for _ in range(2):
        models.append(WithLoss(build("matryoshka")))
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
    fresh = WithLoss(build("matryoshka"))
    fresh(batch)  # which does not build the layers of the loss
    fresh.load_weights(tmp_path / "model.weights.h5")
    for loss in (restored.metric_loss, fresh.metric_loss):
        np.testing.assert_array_equal(values(loss)[0], after)
    unprepared = WithLoss(losses.get("matryoshka", base="arcface", dims=(6, 2)))
    unprepared(batch)
    with pytest.raises(ValueError, match="must know its classes before its weights are loaded"):
        unprepared.load_weights(tmp_path / "model.weights.h5")


def test_a_layer_that_adds_a_loss_trains_it(rng):
    inputs, labels = keras.Input((6,)), keras.Input((), dtype="int32")
    layer = AddsLoss(build("proxy_nca"))
    model = keras.Model([inputs, labels], layer(inputs, labels))
    model.compile("adam", jit_compile=False)
    [before] = values(layer.metric_loss)
    model.fit([rows(rng)[0], LABELS], verbose=0)
    assert np.abs(values(layer.metric_loss)[0] - before).min() > 0
