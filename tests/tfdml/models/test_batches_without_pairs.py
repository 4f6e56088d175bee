"""Batches of one class, or without two images of one, are counted, said and left out of means."""

import json
import pathlib
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import sorted_program
import tensorflow as tf
from small_models import LABELS, build, by_default

from tfdml import EmbeddingModel, losses
from tfdml.models.pair_warnings import lacks_pairs

PROGRAM = pathlib.Path(sorted_program.__file__)


def said(found):
    return [str(each.message) for each in found if "batches of the" in str(each.message)]


@pytest.mark.parametrize("jit_compile", by_default([False, True], [False]))
def test_batches_without_a_positive_pair_are_warned_of_once(jit_compile, images):
    model = build(jit_compile=jit_compile)
    labels = LABELS.reshape(2, 2, 4).swapaxes(0, 1).ravel()  # two classes in each half
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(8)
    lonely = tf.data.Dataset.from_tensor_slices((images[::4], LABELS[::4])).batch(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # also of `shuffle`, as a dataset does itself
        model.fit(batches, verbose=0)
    for data in (lonely.concatenate(batches), batches.concatenate(lonely)):
        with pytest.warns(UserWarning, match="no two images of one class") as found:
            model.fit(data.map(lambda x, y: (x, tf.cast(y, tf.uint8))), epochs=2, verbose=0)
        assert ["of 3 batches of the training 1 had no two images" in each for each in said(found)]
        assert len(said(found)) == 1
    with pytest.warns(UserWarning, match="no two images of one class"):
        model.fit(images[::4], LABELS[::4], verbose=0)


def test_batches_of_one_class_are_warned_of_with_their_number(images):
    batches = tf.data.Dataset.from_tensor_slices((images, LABELS)).batch(4)
    model = build()
    with pytest.warns(UserWarning, match="batches") as found:
        history = model.fit(batches, epochs=2, validation_data=batches, verbose=0).history
    training, evaluation = sorted(said(found), reverse=True)
    assert training.startswith("of 4 batches of the training 4 had no images of two classes")
    assert evaluation.startswith("of 4 batches of the evaluation 4 had no images of two classes")
    assert history["loss"] == [0.0, 0.0]
    assert np.isnan(history["val_loss"]).all()
    with pytest.warns(UserWarning, match="of 4 batches of the evaluation 4 had"):
        assert np.isnan(model.evaluate(batches, verbose=0))


def test_a_long_epoch_is_warned_of_after_ten_batches(images):
    batches = tf.data.Dataset.from_tensor_slices((images, LABELS)).batch(4).repeat(3)
    with pytest.warns(UserWarning, match="of 10 batches of the training 10 had no images of two"):
        build(run_eagerly=True).fit(batches, verbose=0)


def test_the_loss_is_the_mean_of_batches_with_terms(images):
    model = build(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)
    model.embedder.trainable = False
    order = [*range(4), *range(4, 16, 3), *range(5, 16, 3), *range(6, 16, 3)][:12]
    labels = np.where(np.arange(12) < 4, 0, np.arange(12) % 2)
    parts = [slice(at, at + 4) for at in (0, 4, 8)]
    values = [
        float(losses.get("triplet")(labels[part], model.embed(images[order][part])))
        for part in parts
    ]
    assert values[0] == 0
    batches = tf.data.Dataset.from_tensor_slices((images[order], labels)).batch(4)
    with pytest.warns(UserWarning, match="of 3 batches"):
        logs = model.fit(batches, validation_data=batches, verbose=0).history
    np.testing.assert_allclose([logs["loss"], logs["val_loss"]], np.mean(values[1:]), rtol=1e-5)


def test_a_regularizer_of_weights_is_no_term_of_a_loss():
    dense = keras.layers.Dense(3, kernel_regularizer=keras.regularizers.L2(1.0))
    model = EmbeddingModel(keras.Sequential([keras.Input((6,)), dense]))
    model.compile("sgd", "triplet")
    with pytest.warns(UserWarning, match="of 1 batches"):
        assert np.isnan(model.evaluate(np.ones((4, 6)), np.zeros(4, int), verbose=0))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([3, 1, 3], (False, False)),
        ([3, 1, 2], (True, False)),
        ([3, 3, 3], (False, True)),
        ([3], (True, True)),
        ([[3], [3]], (False, True)),
        ([[1, 0, 1], [0, 0, 1], [0, 1, 0]], (False, False)),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], (True, False)),
        ([[1, 0, 1], [0, 1, 1]], (False, True)),
        ([[0, 0], [0, 0]], (True, False)),
    ],
)
def test_positives_and_negatives_of_labels(labels, expected):
    assert tuple(keras.ops.convert_to_numpy(lacks_pairs(np.array(labels)))) == expected


def test_proxies_need_no_positive_pair(images):
    base = {"name": "norm_softmax", "num_classes": 4}
    for each in (losses.get(base), losses.get("matryoshka", base=base, dims=[4])):
        model = build(loss=each, run_eagerly=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            model.fit(images[::4], LABELS[::4], verbose=0)
            model.fit(images[:4], LABELS[:4], verbose=0)
    model = build(loss=losses.WeightedSum({"proxies": base, "triplet": 1.0}), run_eagerly=True)
    with pytest.warns(UserWarning, match="of 1 batches of the training 1 had no images of two"):
        model.fit(images[:4], LABELS[:4], verbose=0)


@pytest.mark.slow
def test_losses_train_on_rows_in_order_alike_on_one_device_and_two_replicas():
    command = [sys.executable, str(PROGRAM), ",".join(losses.LOSSES)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    for name, found in json.loads(run.stdout).items():
        expected = sorted_program.measured(name, tf.distribute.get_strategy())
        loss = losses.get(name, **sorted_program.OPTIONS.get(name, {}))
        warned = {
            data: expected[f"embedding {data}"][2] for data in ("sorted", "mixed", "balanced")
        }
        twice = 2 * loss.traits.compares_rows  # in training and in evaluation
        assert warned == {"sorted": twice, "mixed": twice, "balanced": 0}, name
        assert expected["embedding sorted"][1] != 0, name
        assert np.isfinite(expected["embedding mixed"][1]), name
        for kind, values in expected.items():
            message = f"{name} {kind}"
            np.testing.assert_allclose(found[kind], values, rtol=1e-4, atol=1e-5, err_msg=message)
