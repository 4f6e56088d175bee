import dataclasses
import inspect
import re

import pytest

from tfdml.runs.recipe import Recipe


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"images_per_class": 1}, "`images_per_class` .*Received: images_per_class=1"),
        ({"classes_per_batch": 1}, "`classes_per_batch` .*Received: classes_per_batch=1"),
        (
            {"sampler": "shuffled", "images_per_class": 0},
            "`images_per_class` must be >= 1. Received: images_per_class=0",
        ),
        ({"clip_value": 0.0}, r"`clip_value` .*Received: clip_value=0\.0"),
        ({"clip_norm": -1.0}, r"`clip_norm` .*Received: clip_norm=-1\.0"),
        (
            {"clip_value": 1.0, "clip_norm": 2.0},
            r"`clip_value` and `clip_norm` .*Received: clip_value=1\.0, clip_norm=2\.0",
        ),
        ({"embedding_dim": 0}, "`embedding_dim` .*Received: embedding_dim=0"),
        ({"dropout": 1.0}, r"`dropout` .*Received: dropout=1\.0"),
        ({"seed": 2**32}, "`seed` .*Received: seed=4294967296"),
        ({"seed": -1}, "`seed` .*Received: seed=-1"),
        ({"run": "~"}, "`run` .*without . or ~ first.*Received: run='~'"),
        ({"run": "a/b"}, "`run` .*Received: run='a/b'"),
        ({"run": "a" * 101}, "`run` .*Received: run='aaa"),
        ({"run": "ä" * 51}, "`run` .* 100 bytes .*Received: run='äää"),
        ({"run": "a\nb"}, r"`run` .*Received: run='a\\nb'"),
        (
            {"sampler_options": {"evenly": True}},
            "`sampler_options` .*`groups` and `pairs`.*sampler='balanced', sampler_options={'evenl",
        ),
        ({"sampler": "pair"}, "`sampler` .*'pairs'.*Received: sampler='pair'"),
        ({"schedule": "step"}, "`step` .*`decay_every`.*Received: decay_every=None"),
        ({"schedule": "step", "decay_every": 0}, "`decay_every`.*Received: decay_every=0"),
        ({"decay_every": 5}, "`decay_every` .*`step`.*Received: schedule='cosine', decay_every=5"),
        ({"schedule": "constant", "decay_factor": 0.5}, "`decay_factor` .*`step`.*Received"),
        (
            {"schedule": "step", "decay_every": 5, "decay_factor": 1.0},
            r"`decay_factor` .*Received: decay_factor=1\.0",
        ),
        (
            {"schedule": "step", "decay_every": 5, "warmup_steps": 9},
            "`warmup_steps` .*`cosine`.*Received: schedule='step', warmup_steps=9",
        ),
        ({"steps": -1}, "`steps` .*Received: steps=-1"),
        (
            {"micro_batch": 24, "classes_per_batch": 16},
            "`micro_batch` must divide .*Received: .*classes_per_batch=16, images_per_class=4",
        ),
        ({"exit_multiplier": 0.0}, r"`exit_multiplier` .*Received: exit_multiplier=0\.0"),
    ],
)
def test_a_recipe_rejects_settings_out_of_range(settings, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**settings)


def test_every_setting_is_documented():
    names = [field.name for field in dataclasses.fields(Recipe)]
    assert re.findall(r"^    (\w+):", inspect.getdoc(Recipe), re.MULTILINE) == names


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (1e-3, 1, 0, 32)),
        ({"weights": "imagenet"}, (1e-4, 10, 100, 32)),
        ({"weights": "imagenet", "steps": 50}, (1e-4, 10, 5, 32)),
        ({"init_from": "a"}, (1e-4, 1, 0, 32)),
        ({"weights": "imagenet", "head_multiplier": 3.0, "head_steps": 0}, (1e-4, 3, 0, 32)),
    ],
)
def test_defaults_follow_from_the_start_of_the_network(given, expected):
    names = ("learning_rate", "head_multiplier", "head_steps", "classes_per_batch")
    recipe, reasons = Recipe(**given).completed(num_classes=40)
    assert tuple(getattr(recipe, name) for name in names) == expected
    assert set(reasons) == set(names) - set(given)


def test_few_classes_are_trained_at_a_lower_rate():
    rates = [Recipe().completed(count)[0].learning_rate for count in (5, 9, 10)]
    assert rates == [1e-4, 1e-4, 1e-3]
    assert Recipe(learning_rate=0.5).completed(num_classes=5)[0].learning_rate == 0.5


def test_a_batch_has_at_most_the_classes_there_are():
    assert Recipe().completed(num_classes=7)[0].classes_per_batch == 7
    assert Recipe(classes_per_batch=9).completed(num_classes=7)[0].classes_per_batch == 9


@pytest.mark.parametrize(
    ("sampler", "options", "classes"),
    [
        ("groups", {}, 14),
        ("groups", {"super_classes": 4}, 12),
        ("mixed", {}, 15),
        ("whole_classes", {}, 32),
        ("shuffled", {}, 15),
    ],
)
def test_the_classes_of_a_batch_suit_the_sampler(sampler, options, classes):
    recipe = Recipe(sampler=sampler, sampler_options=options)
    assert recipe.completed(num_classes=15)[0].classes_per_batch == classes


def test_super_classes_divide_the_default_batch_of_many_classes():
    recipe = Recipe(sampler="groups", sampler_options={"super_classes": 3})
    completed, reasons = recipe.completed(num_classes=40)
    assert completed.classes_per_batch == 30
    assert reasons["classes_per_batch"] == "30, 3 super-classes must divide it"


def test_a_run_of_no_steps_leaves_those_of_new_layers_open():
    recipe = Recipe(weights="imagenet", steps=0).completed(40)[0]
    assert dataclasses.replace(recipe, steps=500).completed(40)[0].head_steps == 50
