"""Steps on TensorFlow: one by hand, how often they are traced, and large batches in pieces."""

import keras
import numpy as np
import pytest
import small_models
import tensorflow as tf

import tfdml
from tfdml import EmbeddingModel, losses, optimizers

LABELS = np.repeat(np.arange(5), 4)
INITIALIZER = {"class_name": "RandomNormal", "config": {"seed": 3}}


class Recorded(keras.layers.Layer):
    """Dropout that keeps what it returned."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dropout = keras.layers.Dropout(0.5, seed=3)
        self.returned = []

    def call(self, rows, training=None):
        rows = self.dropout(rows, training=training)
        if training and hasattr(rows, "numpy"):
            self.returned.append(rows.numpy())
        return rows


def build(micro_batch, loss, *layers, **options):
    keras.utils.set_random_seed(0)
    hidden = keras.layers.Dense(7, activation="relu", kernel_regularizer="l2")
    embedder = keras.Sequential([keras.Input((6,)), hidden, *layers, keras.layers.Dense(4)])
    model = tfdml.EmbeddingModel(embedder, micro_batch=micro_batch)
    model.compile(keras.optimizers.SGD(0.1), loss, **options)
    return model


@pytest.mark.parametrize(
    ("name", "options", "kind", "micro_batches"),
    [
        ("npair", {}, "plain", (8, 5, 64)),
        ("npair", {}, "frozen", (8,)),
        ("npair", {}, "scaled", (8,)),
        ("proxy_anchor", {"num_classes": 5, "initializer": INITIALIZER}, "plain", (8,)),
        ("memory", {"base": "contrastive", "size": 64, "start_step": 0}, "plain", (8,)),
    ],
)
def test_updates_equal_those_of_a_step_at_once(name, options, kind, micro_batches, rng):
    def build_of(micro_batch):
        layers = [keras.layers.BatchNormalization(trainable=False)] if kind == "frozen" else []
        model = build(micro_batch, losses.get(name, **options), *layers)
        if kind == "scaled":  # as for mixed precision
            model.compile(keras.optimizers.LossScaleOptimizer(model.optimizer), model.loss)
        return model

    rows, weights, values = rng.normal(size=(20, 6)).astype("float32"), [], []
    for micro_batch in (None, *micro_batches):
        model = build_of(micro_batch)
        values.append([model.train_on_batch(rows, LABELS) for _ in range(3)])
        weights.append(np.concatenate([np.ravel(v) for v in model.trainable_variables]))
    for in_pieces, value in zip(weights[1:], values[1:], strict=True):
        np.testing.assert_allclose(in_pieces, weights[0], atol=1e-6)
        np.testing.assert_allclose(value, values[0], rtol=1e-5)
    untrained = build_of(None)
    start = np.concatenate([np.ravel(v) for v in untrained.trainable_variables])
    assert np.abs(weights[0][: len(start)] - start).max() > 1e-3


def test_dropout_is_the_same_in_both_passes_and_another_in_the_next_step(rng):
    layer = Recorded()
    model = build(8, losses.get("npair"), layer, run_eagerly=True)
    rows = rng.normal(size=(20, 6)).astype("float32")
    for _ in range(2):
        model.train_on_batch(rows, LABELS)
    first, again, second, _ = (
        np.concatenate(layer.returned[at : at + 3]) for at in range(0, 12, 3)
    )
    np.testing.assert_array_equal(first, again)
    assert (first == 0).mean() > 0.3
    assert ((first == 0) != (second == 0)).any()


def test_the_size_of_pieces_is_saved_and_checked():
    model = build(8, losses.get("npair"))
    assert tfdml.EmbeddingModel.from_config(model.get_config()).micro_batch == 8
    for wrong, error in ((0, ValueError), (2.5, TypeError)):
        with pytest.raises(error, match=r"`micro_batch` must be.*Received: micro_batch="):
            build(wrong, losses.get("npair"))


def test_pieces_are_not_compiled_by_xla(rng):
    model = build(8, losses.get("npair"), jit_compile="auto")
    assert model.jit_compile is False
    model.train_on_batch(rng.normal(size=(20, 6)).astype("float32"), LABELS)
    with pytest.raises(ValueError, match="`jit_compile` must not be true with `micro_batch`"):
        build(8, losses.get("npair"), jit_compile=True)


@pytest.mark.parametrize("as_dict", [False, True])
def test_inputs_may_be_several(as_dict, rng):
    rows = dict(zip("ab", rng.normal(size=(2, 20, 6)).astype("float32"), strict=True))
    inputs = {name: keras.Input((6,), name=name) for name in rows}
    initializer = keras.initializers.GlorotUniform(seed=0)
    trained = []
    for size in (None, 8):
        dense = keras.layers.Dense(4, kernel_initializer=initializer)
        joined = dense(keras.layers.Concatenate()(list(inputs.values())))
        embedder = keras.Model(inputs if as_dict else list(inputs.values()), joined)
        model = tfdml.EmbeddingModel(embedder, micro_batch=size)
        model.compile(keras.optimizers.SGD(0.1), "npair")
        model.train_on_batch(rows if as_dict else list(rows.values()), LABELS)
        trained.append(model.get_weights())
    for at_once, in_pieces in zip(*trained, strict=True):
        np.testing.assert_allclose(in_pieces, at_once, atol=1e-6)


def test_losses_of_activations_are_rejected():
    inputs = keras.Input((6,))
    layer = keras.layers.Dense(4, name="penalised", activity_regularizer="l2")
    embedder = keras.Sequential([inputs, keras.Sequential([layer])])
    with pytest.raises(ValueError, match=r"activity_regularizer.*layers=\['penalised'\]"):
        tfdml.EmbeddingModel(embedder, micro_batch=8)


def test_a_step_equals_one_by_hand(images):
    model, twin = (small_models.build(optimizer=keras.optimizers.SGD(0.1)) for _ in range(2))
    with tf.GradientTape() as tape:
        loss = losses.get("triplet")(small_models.LABELS, twin.embedder(images, training=True))
    gradients = tape.gradient(loss, twin.trainable_variables)
    twin.optimizer.apply(gradients, twin.trainable_variables)
    logs = model.train_on_batch(images, small_models.LABELS, return_dict=True)
    np.testing.assert_allclose(logs["loss"], loss, rtol=1e-6)
    for ours, theirs in zip(model.trainable_variables, twin.trainable_variables, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_the_first_step_is_traced_once(images):
    traced = []

    class Counted(EmbeddingModel):
        def train_step(self, data):
            traced.append(data)
            return super().train_step(data)

    model = Counted(small_models.build().embedder)
    model.compile(optimizers.Adam(1e-3), losses.get("triplet"))
    model.fit(images, small_models.LABELS, batch_size=8, verbose=0)
    assert len(traced) == 1


class Rows(keras.utils.PyDataset):
    """A batch of one row, twice, for each image."""

    def __init__(self, images):
        super().__init__()
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, row):
        return self.images[[row, row]], np.array([row, row])


@pytest.mark.parametrize("kind", ["arrays", "batches"])
def test_rows_and_batches_are_shuffled_unless_asked_otherwise(kind, images):
    seen = []

    class Watched(EmbeddingModel):
        def train_step(self, data):
            seen[-1].append(int(data[1][0]))
            return {"loss": 0.0}

    data = (Rows(images),) if kind == "batches" else (images, np.arange(16))
    for shuffle in ({"shuffle": False}, {}):
        seen.append([])
        keras.utils.set_random_seed(0)
        model = Watched(small_models.build().embedder)
        model.compile("sgd", losses.get("triplet"), run_eagerly=True)
        model.fit(*data, verbose=0, **shuffle, **({} if kind == "batches" else {"batch_size": 1}))
    assert seen[0] == list(range(16)) == sorted(seen[1])
    assert seen[1] != seen[0]
