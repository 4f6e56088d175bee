import dataclasses

import pytest

from tfdml.runs.recipe import Recipe
from tfdml.runs.recipe_flags import recipe_of


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("images_per_class=1", "`images_per_class` must be >= 2: one image has no positive"),
        ("classes_per_batch=1", "`classes_per_batch` must be >= 2: one class has no negative"),
        ("sampler=shuffled images_per_class=0", "`images_per_class` must be an integer > 0"),
        ("steps=9 warmup_steps=9", "`warmup_steps` must be < `steps`"),
        ("run=~", "`run` must name a folder, without . or ~ first"),
        ("run=a/b", "Received: run='a/b'"),
        (f"run={'ä' * 51}", "of 100 bytes at most. Received: run='äää"),
        ("run=a\nb", "Received: run='a\\nb'"),
        ("schedule=step", "the `schedule` step needs `decay_every`. Received: schedule='step'"),
        ("decay_every=5", "`decay_every` is of the `schedule` step. Received: decay_every=5"),
        ("schedule=constant decay_factor=0.5", "`decay_factor` is of the `schedule` step"),
        ("schedule=step decay_every=5 decay_factor=1", "`decay_factor` must be a number > 0 and"),
        ("schedule=step decay_every=5 warmup_steps=9", "for the schedules `cosine` and `constant`"),
        ("micro_batch=24 classes_per_batch=16", "classes_per_batch=16, images_per_class=4"),
    ],
)
def test_settings_out_of_range_are_rejected(flags, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        recipe_of([f"--{flag}" for flag in flags.split(" ")])
    assert message in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("sampler", "options", "given", "classes", "reason"),
    [
        ("groups", {}, 15, 14, "2 super-classes must divide it"),
        ("groups", {"super_classes": 4}, 15, 12, "4 super-classes must divide it"),
        ("groups", {"super_classes": 3}, 40, 30, "3 super-classes must divide it"),
        ("mixed", {}, 15, 15, "all training classes"),
        ("whole_classes", {}, 15, 32, "the default"),
        ("shuffled", {}, 15, 15, "all training classes"),
    ],
)
def test_the_classes_of_a_batch_suit_the_sampler(sampler, options, given, classes, reason):
    recipe, reasons = Recipe(sampler=sampler, sampler_options=options).completed(given)
    assert recipe.classes_per_batch == classes
    assert reasons["classes_per_batch"] == f"{classes}, {reason}"


def test_a_run_of_no_steps_leaves_those_of_new_layers_open():
    recipe = Recipe(weights="imagenet", steps=0).completed(40)[0]
    assert dataclasses.replace(recipe, steps=500).completed(40)[0].head_steps == 50
