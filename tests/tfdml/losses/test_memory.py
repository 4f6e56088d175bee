"""Cross-batch memory: what it holds, when it is used, and that runs resume with it."""

import keras
import numpy as np
import pytest
from backend import value_and_gradient
from keras import ops
from oracles import unit

from tfdml import losses
from tfdml.pairwise import NOBODY

LABELS = np.array([0, 0, 1, 1])
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="assigns weights outside a model"
)


def memory(size=10, base="contrastive", **options):
    return losses.get("memory", base=base, size=size, **{"start_step": 0, **options})


def held(loss):
    layer = loss.layer
    return tuple(ops.convert_to_numpy(part) for part in (layer.rows, layer.labels, layer.next))


def test_it_holds_the_last_rows_in_a_ring(rng):
    loss, batches = memory(), rng.normal(size=(4, 4, 3))
    for batch in batches:
        loss(LABELS + 2**40, batch, training=True)
    rows, labels, position = held(loss)
    written = unit(batches.reshape(-1, 3)).astype("float32")
    assert position == 16 % 10
    np.testing.assert_array_equal(rows[position:], written[6:10])
    np.testing.assert_array_equal(rows[:position], written[10:])
    places = [10, 11, 12, 13, 14, 15, 6, 7, 8, 9]
    np.testing.assert_array_equal(labels, np.tile(LABELS, 4)[places] + 2**40)


@pytest.mark.parametrize("base", ["contrastive", "lifted", "triplet", "npair", "multi_similarity"])
def test_a_memory_of_one_batch_adds_the_loss_of_the_batch(base, rng):
    """Its references are the batch itself, and no row is paired with itself."""
    loss, x = memory(size=4, base=base), rng.normal(size=(4, 3)).astype("float32")
    alone = losses.get(base)
    expected = float(alone(LABELS, x))
    assert expected > 0
    value = float(loss(LABELS, x, training=True))
    np.testing.assert_allclose(value, 2 * expected, rtol=1e-5)


@pytest.mark.parametrize("offset", [0, 100])
def test_it_is_written_and_read_in_training_only(offset, rng):
    """Classes of validation images have ids of their own, which may be those of others."""
    loss, x = memory(), rng.normal(size=(2, 4, 3))
    loss(LABELS, x[0], training=True)
    before = held(loss)
    expected = float(losses.get("contrastive")(LABELS + offset, x[1]))
    assert float(loss(LABELS + offset, x[1])) == expected
    for one, other in zip(before, held(loss), strict=True):
        np.testing.assert_array_equal(one, other)


def test_rows_that_were_never_written_pair_with_none(rng):
    x = rng.normal(size=(4, 3)).astype("float32")
    small, large = memory(size=4), memory(size=500)
    values = [float(loss(LABELS, x, training=True)) for loss in (small, large)]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-6)
    assert (held(large)[1][4:] == NOBODY).all()


def test_it_waits_for_the_start(rng):
    x = rng.normal(size=(4, 3)).astype("float32")
    loss = memory(start_step=2, weight=3.0)
    alone = float(losses.get("contrastive")(LABELS, x))
    values = [float(loss(LABELS, x, training=True)) for _ in range(3)]
    np.testing.assert_allclose(values[:2], alone, rtol=1e-6)
    assert values[2] > 2 * alone


def test_no_gradient_flows_into_the_memory(rng):
    x, before = rng.normal(size=(2, 4, 3)), rng.normal(size=(4, 3))
    loss, base = memory(), losses.get("contrastive")
    loss(LABELS, before, training=True)
    value, gradient = value_and_gradient(
        lambda labels, batch: loss(labels, batch, training=True), LABELS, x[0]
    )
    rows, labels, _ = map(ops.convert_to_tensor, held(loss))
    rows, places = ops.cast(rows, "float64"), ops.arange(4, 8)

    def against_what_is_held(batch):
        own = map(ops.convert_to_tensor, (LABELS, unit(batch)))
        others = losses.References(labels, rows, places)
        against = base.call(losses.Batch(*own, others=others))
        return float(base(LABELS, batch)) + float(against)

    step = 1e-5 * x[1]
    difference = against_what_is_held(x[0] + step) - against_what_is_held(x[0] - step)
    np.testing.assert_allclose((gradient * x[1]).sum(), difference / 2e-5, rtol=1e-4)
    assert value > float(base(LABELS, x[0]))


def test_a_batch_beyond_the_memory_is_rejected(rng):
    import tensorflow as tf

    batch = tf.constant(LABELS, "int64"), tf.constant(rng.normal(size=(4, 3)))
    loss = memory(size=3)
    loss(LABELS[:3], rng.normal(size=(3, 3)), training=True)
    with pytest.raises(ValueError, match=r"`size` of the memory.*Received: size=3, batch=4"):
        loss(*batch, training=True)
    step = tf.function(lambda labels, rows: loss(labels, rows, training=True))
    step = step.get_concrete_function(
        tf.TensorSpec([None], "int64"), tf.TensorSpec([None, 3], "float64")
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="`size` of the memory must be"):
        step(*batch)
    assert np.isnan(tf.function(step, jit_compile=True)(*batch))  # XLA raises nothing


def test_a_memory_inside_another_loss_keeps_the_ids(rng):
    inner, run = memory(size=8, start_step=9), {"rows": 4, "classes": 2, "width": 3}
    for base, regularizer in ((inner, "gor"), ("triplet", inner)):
        loss = losses.get("regularized", base=base, regularizer=regularizer)
        loss(LABELS + 7, rng.normal(size=(4, 3)), training=True)
        loss.check_run(**run, steps=10)
        with pytest.raises(ValueError, match=r"`start_step` must be.*start_step=9, steps=9"):
            loss.check_run(**run, steps=9)
    assert held(inner)[1].tolist() == [7, 7, 8, 8] * 2
    with pytest.raises(ValueError, match="`base` must not learn a similarity or keep a memory"):
        losses.get("matryoshka", base=inner, dims=(3, 2))
