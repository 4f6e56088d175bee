"""What a loss learns beside the embedder: by which rate, with which decay, to what end."""

import copy
import pickle

import keras
import numpy as np
import pytest
from small_models import LABELS, OPTIONS, by_default, one_layer

from tfdml import EmbeddingModel, losses, optimizers
from tfdml.models.precision import built_with


@pytest.mark.parametrize(("policy", "by_name"), [("float32", True), ("mixed_float16", False)])
def test_targets_of_density_are_never_decayed(policy, by_name, rng, tmp_path):
    rows, path = rng.normal(size=(16, 6)).astype("float32"), tmp_path / "model.keras"
    with built_with(policy):
        model = one_layer()
        optimizer = keras.optimizers.AdamW(1e-2, weight_decay=1.0)
        bias = {"var_names": ["bias"]} if by_name else {"var_list": [model.embedder.variables[1]]}
        optimizer.exclude_from_weight_decay(**bias)
        # The first gradient of npair is too large for float16, so that its step is skipped.
        loss = losses.get("density", base="triplet", initial_density=[0.3] * 8)
        model.compile(optimizer=optimizer, loss=loss, run_eagerly=True)
        for _ in range(2):
            model.train_on_batch(rows, LABELS)
            targets = np.array(model.loss.layer.targets)
            np.testing.assert_array_equal(targets[4:], 0.5)  # no row in the batch is of these
            assert (targets[:4] > 0.5).all()
            model.save(path)
            model = keras.models.load_model(path)
    assert [optimizer._use_weight_decay(v) for v in optimizer._trainable_variables] == [
        True,
        False,
        False,
    ]


def test_rejects_an_optimizer_that_passes_over_a_multiplier_of_the_loss():
    def compiled(optimizer, multiplier):
        model = one_layer()
        loss = losses.get("density", initial_density=[0.3] * 4, alpha_multiplier=multiplier)
        model.compile(optimizer=optimizer, loss=loss, run_eagerly=True)
        return model

    multipliers = {"^density_targets/": 5.0}
    for optimizer in (
        "adam",
        optimizers.Adam(),
        optimizers.Adam(multipliers={"dense": 3.0}),
        optimizers.Adam(multipliers={"^density_targets/": 2.0}),
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
    ):
        with pytest.raises(ValueError, match="'density_targets' of the loss requires 3 times"):
            compiled(optimizer, 3)
    rows = np.arange(96, dtype="float32").reshape(16, 6)
    moved = []
    for multiplier in (1, 5):
        model = compiled(optimizers.SGD(0.01, multipliers=multipliers), multiplier)
        model.train_on_batch(rows, LABELS)
        moved.append(np.array(model.loss.layer.targets) - 0.5)
    assert (moved[0] > 0).all()
    np.testing.assert_allclose(*moved)  # what the optimizer has counts
    compiled(keras.optimizers.LossScaleOptimizer(optimizers.SGD(multipliers=multipliers)), 5)


WAYS = {
    "deepcopy": lambda model, path, loss: compiled(copied(model), copy.deepcopy(model.loss)),
    "pickle": lambda model, path, loss: compiled(
        copied(model), pickle.loads(pickle.dumps(model.loss))
    ),
    "deepcopy of the model": lambda model, path, loss: copy.deepcopy(model),
    "load": lambda model, path, loss: keras.models.load_model(path),
    "load, compile": lambda model, path, loss: compiled(keras.models.load_model(path), loss),
    "load without compile, compile": lambda model, path, loss: compiled(
        keras.models.load_model(path, compile=False), loss
    ),
    "load weights, compile": lambda model, path, loss: compiled(loaded(copied(model), path), loss),
    "compile, load weights": lambda model, path, loss: loaded(compiled(copied(model), loss), path),
}


def copied(model):
    return EmbeddingModel(copy.deepcopy(model.embedder))


def loaded(model, path):
    model.load_weights(path)
    return model


def compiled(model, loss):
    model.compile(keras.optimizers.SGD(0.01), loss, run_eagerly=True, jit_compile=False)
    return model


DRAWING = {
    "memory": {"start_step": 0},
    "pddm": {"similarity": {"dropout": 0.5}},
    "recall_at_k": {"mix": 4},
}


GO_ON = {*DRAWING, "sampled_classes", "weighted_sum"}


@pytest.mark.parametrize("name", by_default(losses.LOSSES, GO_ON))
def test_a_copied_restored_or_recompiled_model_goes_on_as_the_original(name, rng, tmp_path):
    rows, path = rng.normal(size=(3, 16, 6)).astype("float32"), tmp_path / "model.keras"

    def loss():
        return losses.get(name, **{**OPTIONS.get(name, {}), **DRAWING.get(name, {})})

    embedder = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8 * loss().levels)])
    model = compiled(EmbeddingModel(embedder), loss())
    for batch in rows[:2]:
        model.train_on_batch(batch, LABELS)
    model.save(path)
    others = {way: go_on(model, path, loss()) for way, go_on in WAYS.items()}
    expected, *states = step(model, rows[2])
    for way, other in others.items():
        found, *its = step(other, rows[2])
        np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=way)
        for one, that in zip(its, states, strict=True):
            np.testing.assert_allclose(one, that, rtol=1e-5, atol=1e-6, err_msg=way)


def step(model, batch):
    """The loss of a training step, and what it left."""
    model.reset_metrics()
    loss = model.train_on_batch(batch, LABELS)
    layers = [model.embedder, *model.loss_layers]
    return [loss, *(keras.ops.convert_to_numpy(v) for layer in layers for v in layer.variables)]


def trained(num_classes=4):
    model = compiled(one_layer(), losses.get("cosface", num_classes=num_classes))
    model.train_on_batch(np.ones((4, 6), "float32"), np.arange(4) % num_classes)
    return model


def proxies_of(model):
    return keras.ops.convert_to_numpy(model.loss.layer.proxies)


def test_trained_weights_of_other_shapes_are_never_replaced_in_silence(tmp_path):
    model, path = trained(), tmp_path / "model.weights.h5"
    model.save_weights(path)
    more = losses.get("cosface", num_classes=6)
    other = r"(?s)'class_proxies' of the.*start anew.*loss=\[\(6, 4\)\], trained=\[\(4, 4\)\]"
    before = proxies_of(model)
    with pytest.raises(ValueError, match=other):
        model.compile("adam", more)
    np.testing.assert_array_equal(proxies_of(model), before)  # and nothing is lost
    model.train_on_batch(np.ones((4, 6), "float32"), np.arange(4))
    with pytest.raises(ValueError, match=other):
        loaded(one_layer(), path).compile("adam", losses.get("cosface", num_classes=6))
    larger = compiled(one_layer(), losses.get("cosface", num_classes=6))
    with pytest.raises(ValueError, match=other):
        larger.load_weights(path)
    compiled(EmbeddingModel(model.embedder), losses.get("cosface", num_classes=6))


def test_what_was_loaded_is_kept_until_a_loss_takes_it(tmp_path):
    model, path = trained(), tmp_path / "model.keras"
    model.save(path)
    other = keras.models.load_model(path, compile=False)
    compiled(other, losses.get("triplet"))
    compiled(other, losses.get("cosface", num_classes=4))
    np.testing.assert_array_equal(proxies_of(other), proxies_of(model))


def test_an_untrained_model_takes_another_loss():
    model = compiled(one_layer(), losses.get("cosface", num_classes=6))
    compiled(model, losses.get("cosface", num_classes=4))
    assert proxies_of(model).shape == (4, 4)


def test_a_loss_whose_weights_are_set_keeps_them():
    model, loss = trained(), losses.get("cosface", num_classes=4)
    loss.layer.build((None, 4))
    own = keras.ops.convert_to_numpy(loss.layer.proxies)
    np.testing.assert_array_equal(proxies_of(compiled(model, loss)), own)


def test_a_loss_of_another_model_is_rejected():
    model = trained()
    with pytest.raises(ValueError, match=r"must not be that of another model.*copy\.deepcopy"):
        compiled(one_layer(), model.loss)
    loss = copy.deepcopy(model.loss)
    np.testing.assert_array_equal(proxies_of(compiled(one_layer(), loss)), proxies_of(model))
    compiled(model, model.loss)


def test_classes_that_are_counted_after_compile_ask_for_another():
    model = compiled(one_layer(), losses.get("cosface"))
    model.loss.prepare(np.arange(4))
    with pytest.raises(ValueError, match=r"after `compile`.*or compile again"):
        model.train_on_batch(np.ones((4, 6), "float32"), np.arange(4))
