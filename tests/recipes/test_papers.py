"""The recipes of the papers' tables: each trains, says what is missing, and fits its table."""

import dataclasses
import functools
import pathlib
import re
import shlex

import numpy as np
import programs
import pytest
import tensorflow as tf

import pipelines
from tfdml import runs
from tfdml.programs import evaluate, train
from tfdml.runs.recipe import Recipe
from tfdml.runs.table import read_table

ROOT = pathlib.Path(__file__).parents[2] / "recipes"
SETS = ("cub200", "cars196", "sop", "in_shop", "vehicle_id", "imagenet2010", "imagenet10k")
PAPERS = ("density", "hdc", "lifted", "pddm")


@functools.cache
def table_of(paper):
    return read_table(ROOT / paper / "papers.yaml")


NAMES = [f"{paper}/{row}" for paper in PAPERS for row in table_of(paper).rows]
SIDE, WARP = 20, 22

# Every layout of images, sampler and solver; the first three by default.
CHOSEN = (
    "hdc/in_shop_hdc",
    "lifted/cub200_contrastive",
    "pddm/imagenet2010_zero_shot",
    "density/sop_npair",
    "hdc/vehicle_id_googlenet_pool5",
    "pddm/cars196_quadruplet",
)


def flags_of(paper, row):
    return ["--config", str(ROOT / paper / "papers.yaml"), "--row", row]


def recipe_of(name):
    paper, row = name.split("/")
    return Recipe(**table_of(paper).settings_of(row))


def recipes_to_train():
    """Those chosen, and the first of each other loss of a paper."""
    others = {(name.partition("/")[0], recipe_of(name).loss): name for name in reversed(NAMES)}
    names = [*CHOSEN, *sorted({*others.values()} - {*CHOSEN})]
    return names[:3] + [pytest.param(name, marks=pytest.mark.slow) for name in names[3:]]


@pytest.fixture(scope="module")
def dataset():
    """Random images of 72 classes in two super-classes, in place of those of the papers."""
    labels = np.repeat(np.arange(72), 5)
    images = np.random.default_rng(0).integers(0, 256, (len(labels), WARP, WARP, 3), np.uint8)
    split = pipelines.Split(images, labels, super_labels=labels % 2)
    others = pipelines.Split(images[:10], labels[:10] + 72)
    return pipelines.Dataset("x", split, others, (WARP, WARP, 3), pipelines.Augmentation())


@pytest.fixture(scope="module")
def _eagerly():
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.filterwarnings("ignore:Even though the .* is set")
@pytest.mark.usefixtures("_eagerly")
@pytest.mark.parametrize("name", recipes_to_train())
def test_trains_a_small_network_for_two_steps(name, dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(pipelines, "load", lambda *_, **__: dataset, raising=False)
    recipe, mean = recipe_of(name), tmp_path / "mean.npy"
    np.save(mean, np.full((WARP, WARP, 3), 110, np.float32))
    sizes = {"image_size": SIDE, "warp_size": WARP, "mean_image": recipe.mean_image and str(mean)}
    recipe = dataclasses.replace(recipe, **sizes, weights=None, backbone="small_cnn")
    run = runs.prepare(recipe)
    model, batches = run.model, run.batches
    if not recipe.steps:
        embeddings = model.embed(batches.map(lambda rows, labels: rows).take(1))
        np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-5)
        return
    before = [np.array(variable) for variable in model.trainable_variables]
    history = model.fit(batches, steps_per_epoch=2, verbose=0, shuffle=False)
    assert np.isfinite(history.history["loss"]).all()
    assert int(model.optimizer.iterations) == 2
    moved = [
        not np.array_equal(old, new)
        for old, new in zip(before, model.trainable_variables, strict=True)
    ]
    assert np.mean(moved) > 0.9


def test_the_chosen_recipes_have_every_choice_of_all():
    settings = {name: recipe_of(name) for name in NAMES}
    for choice in ("sampler", "optimizer", "schedule", "boxes", "trim_white"):
        choices = {getattr(recipe, choice) for recipe in settings.values()}
        assert {getattr(settings[name], choice) for name in CHOSEN} == choices, choice
    layouts = {name.partition("/")[2].partition("_")[0] for name in CHOSEN}
    assert layouts | {"imagenet10k"} == {name.partition("_")[0] for name in SETS}


@pytest.mark.parametrize(
    ("name", "archive"),
    [
        ("lifted/cub200_lifted", "CUB_200_2011.tgz of Caltech-UCSD Birds 200-2011"),
        ("pddm/imagenet10k_transfer", "the archives of the synsets, such as n01440764.tar"),
    ],
)
def test_says_what_to_get_where_the_images_are_not_there(name, archive, tmp_path):
    error = programs.run(train.main, *flags_of(*name.split("/")), cwd=tmp_path).sentence
    assert archive in error
    assert error.endswith(f"there is no {recipe_of(name).data_dir}")


TABLES = [table for paper in PAPERS for table in table_of(paper).reported["tables"]]


def test_every_recipe_has_a_row_of_its_paper_and_every_other_row_a_reason():
    rows = [row for table in TABLES for row in table["rows"]]
    assert all(("row" in row) != ("without" in row) for row in rows)
    named = {row["row"] for row in rows if "row" in row}
    assert named == {name.partition("/")[2] for name in NAMES}


def test_train_and_evaluate_take_the_commands_of_the_page():
    page = (ROOT.parent / "docs" / "reproduce.md").read_text("utf-8").partition("## Tables")[2]
    config = r"`python train.py --config recipes/(\w+)/papers.yaml --row (\w+)([^`]*)`"
    trained = {*re.findall(config, page)}
    assert len(trained) > 60
    named = set()
    for paper, row, words in trained:
        recipe = recipe_of(f"{paper}/{row}")
        if words:
            recipe, *_ = train.parse([*flags_of(paper, row), *words.split()])
        named.add(recipe.run)
    scored = {*re.findall(r"`python evaluate.py saved_models/(\S+) ([^`]*)`", page)}
    assert {run for run, _ in scored} == named
    for words in {words for _, words in scored}:
        evaluate.parse(*evaluate.task_of(["saved_models/a", *shlex.split(words)]))


def test_all_have_the_settings_that_their_papers_state():
    for name in NAMES:
        check_against_its_paper(name)


def check_against_its_paper(name):
    recipe, paper = recipe_of(name), name.partition("/")[0]
    batch = recipe.classes_per_batch * recipe.images_per_class
    if not recipe.steps:
        assert recipe.embedding_dim is None
        return
    stated = {
        "lifted": {"optimizer": "sgd", "bias_multiplier": 2, "head_multiplier": 10, "dropout": 0.4},
        "pddm": {"learning_rate": 1e-4, "weight_decay": 5e-4, "images_per_class": 4},
        "hdc": {"optimizer": "sgd", "weight_decay": 2e-4, "head_multiplier": 10, "warp_size": 256},
        "density": {"optimizer": "adam", "steps": 30000, "schedule": "constant"},
    }[paper]
    found = dataclasses.asdict(recipe)
    assert {setting: found[setting] for setting in stated} == stated, name
    sizes = {"lifted": {128, 120}, "pddm": {64, 32}, "hdc": {100, 128, 120}, "density": {100}}
    assert batch in sizes[paper], name
    if paper == "density":
        rates = {"cars196": 5e-4, "cub200": 1e-5, "stanford_online_products": 3e-5}
        assert recipe.learning_rate == rates[recipe.dataset], name
    if paper == "pddm":
        assert (recipe.boxes == "annotated") == (recipe.backbone == "googlenet"), name
    if recipe.loss == "hdc":
        assert recipe.loss_options["hard_ratios"] == [1.0, 0.5, 0.2], name
        assert recipe.dropout == [0.7, 0.7, 0.4], name
        assert (batch, recipe.augmentation) == (100, {"flip": False}), name
