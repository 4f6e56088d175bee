"""The model of a recipe: its loss, its layers and what each learns at."""

import dataclasses
import re

import keras
import numpy as np
import pytest
import yaml
from small_runs import completed, small_dataset

import pipelines
from tfdml import EmbeddingModel
from tfdml.models import build_embedder
from tfdml.runs.network import build_model, learning_rate, read_model, with_loss_options


def test_settings_of_a_run_reach_its_network_and_optimizer():
    dataset = small_dataset()
    recipe = completed(backbone="mobilenet_v2", pooling="average+max", clip_norm=2.0)
    recipe = dataclasses.replace(recipe, dropout=0.3, micro_batch=4)
    wide = dataclasses.replace(dataset, image_size=(32, 32, 3))
    model = build_model(recipe, dataset.train, wide)
    assert model.micro_batch == 4
    assert 0.3 in [getattr(layer, "rate", None) for layer in model.embedder.layers]
    assert model.embedder.get_layer("average_and_max").output.shape == (None, 1280)
    assert model.optimizer.global_clipnorm == 2.0
    mirrored = build_model(completed(mirror=True), dataset.train, dataset)
    assert mirrored.embedder.get_layer("mirror_average")


@pytest.mark.parametrize(
    ("loss", "options", "filled"),
    [
        ("triplet", {"margin": 0.5}, {"margin": 0.5, "mining": "all", "normalize": True}),
        ("lifted", {}, {"margin": 30.0, "variant": "smooth", "normalize": False}),
        ("lifted", {"preset": "published"}, {"margin": 1.0, "preset": "published"}),
        ("hard_contrastive", {}, {"levels": 1, "hard_ratios": [0.5]}),
        ("pddm", {"similarity": {"dropout": 0.1}}, {"similarity": {"dropout": 0.1}, "alpha": 0.1}),
    ],
)
def test_options_of_the_loss_that_are_not_given_are_filled_in(loss, options, filled):
    recipe = with_loss_options(completed(loss=loss, loss_options=options))
    assert filled.items() <= recipe.loss_options.items()
    again = with_loss_options(recipe)
    assert again.loss_options == yaml.safe_load(yaml.safe_dump(recipe.loss_options))


def built(**settings):
    """The model of a small recipe on digits, and what each of its variables learns at."""
    dataset = pipelines.load("digits")
    recipe = completed(dataset="digits", **{"embedding_dim": 4, **settings})
    model = build_model(recipe, dataset.train, dataset)
    model.optimizer.build(model.trainable_variables)
    paths = [variable.path for variable in model.trainable_variables]
    return model, dict(zip(paths, model.optimizer._multiplier_of, strict=True))


def test_a_frozen_similarity_is_not_trained():
    model, rates = built(loss="pddm", loss_options={"similarity": {"trainable": False}})
    assert model.loss.layer.weights
    assert rates.keys().isdisjoint(variable.path for variable in model.loss.layer.weights)


def test_exits_and_biases_have_multipliers_of_their_own():
    multipliers = {"head_multiplier": 10.0, "exit_multiplier": 3.0, "bias_multiplier": 2.0}
    _, rates = built(loss="hdc", **multipliers)
    assert rates["embedding3/kernel"] == rates["embedding1/kernel"] == 10
    assert rates["exit1_conv/kernel"] == rates["exit2_fc/kernel"] == 3
    assert rates["conv1/kernel"] == 1
    biases = {path: rate for path, rate in rates.items() if path.endswith("/bias")}
    assert biases
    for path, rate in biases.items():
        assert rate == 2 * rates[path.replace("/bias", "/kernel")]


@pytest.mark.parametrize(
    ("loss", "options", "rate"),
    [
        ("pddm", {}, 7),
        ("proxy_anchor", {}, 7),
        ("proxy_anchor", {"proxy_multiplier": 3.0}, 3),
        ("density", {"alpha_multiplier": 30}, 30),
    ],
)
def test_what_a_loss_learns_has_the_rate_of_the_head_or_its_own(loss, options, rate):
    model, rates = built(loss=loss, loss_options=options, head_multiplier=7.0, weight_decay=5e-4)
    assert model.optimizer.l2 == 5e-4
    rates = {path.split("/")[0]: rate for path, rate in rates.items()}
    assert (rates.pop("embedding"), rates.pop(model.loss.layer.name)) == (7, rate)
    assert set(rates.values()) == {1}


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        ("density", {"num_classes": 4, "correlation": False}, "Received: num_classes=4, classes=5"),
        ("density", {"initial_density": [0.1]}, "Received: num_classes=1, classes=5"),
    ],
)
def test_density_of_other_classes_is_rejected_before_the_run_begins(loss, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        built(loss=loss, loss_options=options)


@pytest.mark.parametrize(
    ("loss", "options", "measured"),
    [
        ("density", {"correlation": False}, False),
        ("density", {"num_classes": 5}, True),
        ("density", {"initial_density": [0.1, 0.2, 0.3, 0.4, 0.5]}, False),
        ("density", {"base": "npair", "eta": 1.0}, True),
        ("regularized", {"base": "npair", "regularizer": "density"}, True),
    ],
)
def test_density_is_measured_where_it_is_needed(loss, options, measured, capsys):
    loss = built(loss=loss, loss_options=options)[0].loss
    assert ("Embedding" in capsys.readouterr().out) == measured
    assert loss.num_classes == 5
    if measured:
        densities = loss.regularizer.initial_density
        assert len(densities) == 5
        assert 0.01 < min(densities) < max(densities) < 0.95
    if "initial_density" in options:
        assert loss.regularizer.initial_density == options["initial_density"]


@pytest.mark.parametrize(
    ("frozen_before", "given"), [(True, None), (False, None), (True, False), (False, True)]
)
def test_batch_normalisation_stays_frozen_where_it_was(frozen_before, given, tmp_path):
    embedder = build_embedder(
        "small_cnn", 4, input_shape=(8, 8, 1), freeze_batch_norm=frozen_before
    )
    model = EmbeddingModel(embedder)
    model.compile("adam", "triplet")
    model.save(tmp_path / "before.keras")
    start = str(tmp_path / "before.keras")
    started = built(loss="triplet", init_from=start, freeze_batch_norm=given)[0].embedder
    norms = [x for x in started.layers if isinstance(x, keras.layers.BatchNormalization)]
    frozen = frozen_before if given is None else given
    assert norms
    assert {layer.trainable for layer in norms} == {not frozen}


@pytest.mark.parametrize(("embedding_dim", "steps"), [(4, 5), (None, 0)])
def test_no_steps_are_for_new_layers_where_there_are_none(embedding_dim, steps):
    model, _ = built(loss="triplet", embedding_dim=embedding_dim, head_steps=5, steps=50)
    assert model.optimizer.head_steps == steps


STEPWISE = {"schedule": "step", "decay_every": 400}


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({}, {0: 1e-3, 500: 5e-4, 1000: 0}),
        ({"schedule": "constant"}, {0: 1e-3, 500: 1e-3, 1000: 1e-3}),
        ({"warmup_steps": 500}, {0: 0, 500: 1e-3, 1000: 0}),
        ({"warmup_steps": 500, "schedule": "constant"}, {0: 0, 500: 1e-3, 1000: 1e-3}),
        (STEPWISE, {0: 1e-3, 399: 1e-3, 400: 1e-4, 799: 1e-4, 800: 1e-5}),
        ({**STEPWISE, "decay_factor": 0.96}, {999: 1e-3 * 0.96**2}),
    ],
)
def test_the_learning_rate_follows_its_schedule(settings, rates):
    schedule = learning_rate(completed(steps=1000, checkpoint_every=100, **settings))
    assert {step: float(schedule(step)) for step in rates} == pytest.approx(
        rates, rel=1e-5, abs=1e-8
    )


def test_a_damaged_checkpoint_is_named(tmp_path):
    embedder = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model = EmbeddingModel(embedder)
    model.compile(optimizer="adam", loss="triplet")
    model.save(path := tmp_path / "checkpoint.keras")
    content = bytearray(path.read_bytes())
    place = content.rindex(np.asarray(embedder.variables[0])[0].tobytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"checkpoint\.keras cannot be read .*damaged='model\."):
        read_model(path)
