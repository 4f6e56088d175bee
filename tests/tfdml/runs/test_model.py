"""The model of a recipe: its loss, its layers and what each learns at."""

import dataclasses
import re

import keras
import pytest
import yaml
from small_runs import (
    completed,
    small_dataset,
)

import pipelines
from tfdml import EmbeddingModel
from tfdml.models import build_embedder
from tfdml.programs import train
from tfdml.runs.model import with_loss_options
from tfdml.runs.recipe import Recipe


def test_settings_of_a_run_reach_its_network_and_optimizer():
    dataset = small_dataset()
    recipe = completed(backbone="mobilenet_v2", pooling="average+max", clip_norm=2.0)
    recipe = dataclasses.replace(recipe, dropout=0.3, micro_batch=4)
    wide = dataclasses.replace(dataset, image_size=(32, 32, 3))
    model = train.build_model(recipe, dataset.train, wide)
    assert model.micro_batch == 4
    assert 0.3 in [getattr(layer, "rate", None) for layer in model.embedder.layers]
    assert model.embedder.get_layer("average_and_max").output.shape == (None, 1280)
    assert model.optimizer.global_clipnorm == 2.0
    mirrored = train.build_model(completed(mirror=True), dataset.train, dataset)
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


def test_a_frozen_similarity_is_not_trained():
    options = {"similarity": {"trainable": False}}
    recipe = completed(loss="pddm", loss_options=options, dataset="digits", embedding_dim=4)
    dataset = pipelines.load("digits")
    model = train.build_model(recipe, dataset.train, dataset)
    model.optimizer.build(model.trainable_variables)
    assert model.loss.layer.weights
    trained = {variable.path for variable in model.trainable_variables}
    assert trained.isdisjoint(variable.path for variable in model.loss.layer.weights)


def test_exits_and_biases_have_multipliers_of_their_own():
    recipe = completed(
        loss="hdc",
        dataset="digits",
        embedding_dim=4,
        head_multiplier=10.0,
        exit_multiplier=3.0,
        bias_multiplier=2.0,
    )
    dataset = pipelines.load("digits")
    model = train.build_model(recipe, dataset.train, dataset)
    model.optimizer.build(model.trainable_variables)
    rates = {
        variable.path: rate
        for variable, rate in zip(
            model.trainable_variables, model.optimizer._multiplier_of, strict=True
        )
    }
    assert rates["embedding3/kernel"] == rates["embedding1/kernel"] == 10
    assert rates["exit1_conv/kernel"] == rates["exit2_fc/kernel"] == 3
    assert rates["conv1/kernel"] == 1
    biases = {path: rate for path, rate in rates.items() if path.endswith("/bias")}
    assert biases
    for path, rate in biases.items():
        assert rate == 2 * rates[path.replace("/bias", "/kernel")]


def test_the_similarity_learns_at_the_rate_of_the_head():
    recipe = completed(
        loss="pddm", dataset="digits", embedding_dim=4, head_multiplier=7.0, weight_decay=5e-4
    )
    dataset = pipelines.load("digits")
    model = train.build_model(recipe, dataset.train, dataset)
    model.optimizer.build(model.trainable_variables)
    assert model.optimizer.l2 == 5e-4
    rates = {
        variable.path.split("/")[0]: rate
        for variable, rate in zip(
            model.trainable_variables, model.optimizer._multiplier_of, strict=True
        )
    }
    assert rates.pop("embedding") == rates.pop(model.loss.layer.name) == 7.0
    assert set(rates.values()) == {1.0}


@pytest.mark.parametrize(("given", "expected"), [(None, 3.0), (7.0, 7.0)])
def test_proxies_learn_at_the_rate_of_new_layers_or_their_own(given, expected):
    options = {} if given is None else {"proxy_multiplier": given}
    recipe = completed(
        loss="proxy_anchor", loss_options=options, dataset="digits", head_multiplier=3.0
    )
    dataset = pipelines.load("digits")
    model = train.build_model(recipe, dataset.train, dataset)
    assert model.loss.num_classes == dataset.train.num_classes
    assert model.optimizer.multiplier_at("class_proxies/proxies") == expected


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        ("density", {"base": "density"}, "must not have layers of the same name"),
        ("density", {"num_classes": 4, "correlation": False}, "Received: num_classes=4, classes=5"),
        ("density", {"initial_density": [0.1]}, "Received: num_classes=1, classes=5"),
    ],
)
def test_density_of_other_classes_is_rejected_before_the_run_begins(loss, options, message):
    recipe = completed(loss=loss, loss_options=options, dataset="digits", embedding_dim=4)
    dataset = pipelines.load("digits")
    with pytest.raises(ValueError, match=re.escape(message)):
        train.build_model(recipe, dataset.train, dataset)


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
    recipe = completed(loss=loss, loss_options=options, dataset="digits", embedding_dim=4)
    dataset = pipelines.load("digits")
    loss = train.build_model(recipe, dataset.train, dataset).loss
    assert ("Embedding" in capsys.readouterr().out) == measured
    assert loss.num_classes == 5
    if "initial_density" in options:
        assert loss.regularizer.initial_density == options["initial_density"]


@pytest.mark.parametrize("frozen_before", [True, False])
@pytest.mark.parametrize("given", [None, True, False])
def test_batch_normalisation_stays_frozen_where_it_was(frozen_before, given, tmp_path):
    embedder = build_embedder(
        "small_cnn", 4, input_shape=(8, 8, 1), freeze_batch_norm=frozen_before
    )
    model = EmbeddingModel(embedder)
    model.compile("adam", "triplet")
    model.save(tmp_path / "before.keras")
    start = str(tmp_path / "before.keras")
    recipe = Recipe(loss="triplet", embedding_dim=4, init_from=start, freeze_batch_norm=given)
    digits = pipelines.load("digits")
    started = train.build_model(recipe.completed(5)[0], digits.train, digits).embedder
    norms = [x for x in started.layers if isinstance(x, keras.layers.BatchNormalization)]
    frozen = frozen_before if given is None else given
    assert norms
    assert {layer.trainable for layer in norms} == {not frozen}


@pytest.mark.parametrize(("embedding_dim", "steps"), [(4, 5), (None, 0)])
def test_no_steps_are_for_new_layers_where_there_are_none(embedding_dim, steps):
    recipe = Recipe(loss="triplet", embedding_dim=embedding_dim, head_steps=5, steps=50)
    digits = pipelines.load("digits")
    model = train.build_model(recipe.completed(5)[0], digits.train, digits)
    assert model.optimizer.head_steps == steps
