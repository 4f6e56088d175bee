"""A model that is saved and loaded goes on as it was, with what its loss learned."""

import subprocess
import sys

import keras
import pytest
from small_models import build

from tfdml import EmbeddingModel, losses, optimizers
from tfdml.models import build_embedder


def test_a_frozen_or_mixed_model_comes_back_so(tmp_path):
    embedder = build_embedder("small_cnn", 8, input_shape=(8, 8, 1))
    model = EmbeddingModel(embedder, name="mine", dtype="mixed_bfloat16")
    head_first = optimizers.SGD(0.1, multipliers={"^embedding/": 10.0})
    model.compile(optimizer=head_first, loss=losses.get("triplet"))
    model.trainable = False
    model.save(tmp_path / "model.keras")
    restored = keras.models.load_model(tmp_path / "model.keras")
    assert restored.name == "mine"
    assert restored.dtype_policy.name == "mixed_bfloat16"
    assert not restored.trainable
    assert not restored.trainable_variables


def test_a_model_whose_embedder_is_frozen_comes_back_without_the_state_of_the_optimizer(tmp_path):
    model = EmbeddingModel(build_embedder("small_cnn", 8, input_shape=(8, 8, 1)))
    head_first = optimizers.SGD(0.1, multipliers={"^embedding/": 10.0})
    model.compile(optimizer=head_first, loss=losses.get("cosface", num_classes=4))
    model.embedder.trainable = False
    model.save(tmp_path / "model.keras")
    with pytest.warns(UserWarning, match="the optimizer is not restored: every pattern"):
        restored = keras.models.load_model(tmp_path / "model.keras")
    assert [v.path for v in restored.trainable_variables] == ["class_proxies/proxies"]


def test_weights_of_the_loss_that_an_earlier_version_saved_are_ignored():
    model = build()
    config = {**model.get_compile_config(), "loss_weights": 0.5}
    model.compile_from_config(config)
    assert model.optimizer.built
    wrong = optimizers.SGD(0.1, multipliers={"nothing": 2.0})
    config["optimizer"] = keras.saving.serialize_keras_object(wrong)
    with pytest.raises(ValueError, match="every pattern of `multipliers` must match"):
        model.compile_from_config(config)


@pytest.mark.slow  # test_registration.py knows all that such a program registers
def test_a_fresh_program_loads_a_saved_model(tmp_path):
    model = EmbeddingModel(build_embedder("small_cnn", 4, input_shape=(8, 8, 1)))
    model.compile(optimizer=optimizers.SGD(0.1), loss=losses.get("npair"))
    model.save(path := tmp_path / "model.keras")
    program = (
        f"import tfdml, keras\nmodel = keras.models.load_model({str(path)!r})\n"
        "print(type(model.loss).__name__, type(model.optimizer).__module__)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "NPairLoss tfdml.optimizers", run.stderr[-2000:]
