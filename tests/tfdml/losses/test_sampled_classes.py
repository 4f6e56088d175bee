"""A softmax over some of the classes: which they are, and which proxies an update moves."""

import keras
import numpy as np
import pytest

import tfdml
from tfdml import losses, optimizers

if keras.backend.backend() != "tensorflow":
    pytest.skip("trains by TensorFlow", allow_module_level=True)
import tensorflow as tf

INITIALIZER = {"class_name": "RandomNormal", "config": {"seed": 3}}
COSFACE = {"num_classes": 50, "initializer": INITIALIZER, "scale": 8.0}


def sampled(rate, **options):
    return losses.get("sampled_classes", base={"name": "cosface", **COSFACE, **options}, rate=rate)


def build(loss, optimizer, **options):
    keras.utils.set_random_seed(0)
    model = tfdml.EmbeddingModel(keras.Sequential([keras.Input((6,)), keras.layers.Dense(8)]))
    model.compile(optimizer, loss, **options)
    return model


@pytest.fixture
def batch(rng):
    return rng.normal(size=(20, 6)).astype("float32"), rng.integers(0, 50, 20)


OPTIMIZERS = [
    lambda: optimizers.SGD(0.1),
    lambda: optimizers.SGD(0.1, momentum=0.9),
    lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    lambda: optimizers.Adam(0.01),
    lambda: optimizers.Adam(0.01, amsgrad=True),
    lambda: keras.optimizers.Adam(0.01),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_all_classes_make_the_update_of_the_base(optimizer, batch):
    whole, drawn = (
        build(losses.get("cosface", **COSFACE), optimizer(), run_eagerly=True),
        build(sampled(1.0), optimizer(), run_eagerly=True),
    )
    for _ in range(3):
        np.testing.assert_allclose(
            drawn.train_on_batch(*batch), whole.train_on_batch(*batch), rtol=1e-5
        )
    np.testing.assert_allclose(drawn.loss.layer.proxies, whole.loss.layer.proxies, atol=1e-4)


@pytest.mark.parametrize("optimizer", OPTIMIZERS[:5])
def test_an_update_moves_the_sampled_proxies_alone_those_of_the_batch_among_them(optimizer, batch):
    model, moved = build(sampled(0.5), optimizer(), run_eagerly=True), []
    for _ in range(3):
        before = np.array(model.loss.layer.proxies)
        model.train_on_batch(*batch)
        moved.append(np.abs(model.loss.layer.proxies - before).max(axis=1) > 0)
    if optimizer is not OPTIMIZERS[4]:  # amsgrad moves all rows by their moments
        assert [each.sum() for each in moved] == [25, 25, 25]
        assert (moved[0] != moved[1]).any()
    assert all(each[batch[1]].all() for each in moved)


def test_the_number_of_sampled_classes_is_rounded_up(batch):
    model = build(sampled(0.55), "sgd")
    before = np.array(model.loss.layer.proxies)
    model.train_on_batch(*batch)
    assert (np.array(model.loss.layer.proxies) != before).any(axis=1).sum() == 28  # of 27.5


def test_the_denominator_grows_with_the_rate(batch):
    model = build(sampled(1.0), "sgd")
    rows = model.embed(batch[0])
    values = [
        np.mean([float(sampled(rate)(batch[1], rows, training=True)) for _ in range(8)])
        for rate in (0.4, 0.7, 1.0)
    ]
    assert values[0] < values[1] < values[2]
    np.testing.assert_allclose(values[2], float(sampled(0.4)(batch[1], rows)), rtol=1e-5)


def test_what_cannot_be_sampled_is_rejected(batch):
    of_run = {"rows": 20, "width": 8, "steps": 9}
    sampled(0.3).check_run(classes=15, **of_run)
    with pytest.raises(ValueError, match=r"`rate` must sample.*sampled=15, classes=16"):
        losses.get("matryoshka", base=sampled(0.3), dims=[8]).check_run(classes=16, **of_run)
    classes = len(set(batch[1].tolist()))
    build(sampled(classes / 50), "sgd").train_on_batch(*batch)
    few = build(sampled((classes - 1) / 50), "sgd")
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"at most {classes - 1} classes"):
        few.train_on_batch(*batch)
