"""What a newcomer meets: defaults that follow from what is given, longer runs, one writer."""

import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys
import types

import keras
import numpy as np
import programs
import pytest
import tensorflow as tf
import yaml
from small_runs import few_digits, write_images

import pipelines
from tfdml import EmbeddingModel, callbacks, optimizers
from tfdml.models import build_embedder
from tfdml.programs import train
from tfdml.runs import outcome
from tfdml.runs.folders import RUNS, make_folders, only_writer
from tfdml.runs.recipe import Recipe
from tfdml.serving.exported import trained_classes

SMALL = ["--dataset", "digits", "--loss", "triplet", "--embedding_dim", "4"]
ROOT = pathlib.Path(__file__).parents[1]
pytestmark = pytest.mark.xdist_group("first_run")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which run `a` was trained for 5 steps, in intervals of 2."""
    folder = tmp_path_factory.mktemp("first")
    arguments = [*SMALL, "--steps", "5", "--checkpoint_every", "2", "--run", "a"]
    result = programs.run(train.main, *arguments, cwd=folder)
    assert result.code == 0, result.err
    return folder, result


def settings_of(folder, run):
    return yaml.safe_load((folder / "runs" / run / "config.yaml").read_text())


def steps_of(folder, run):
    model = keras.models.load_model(folder / "runs" / run / "checkpoint.keras")
    return int(model.optimizer.iterations)


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


def test_a_run_of_no_steps_leaves_those_of_new_layers_open():
    recipe = Recipe(weights="imagenet", steps=0).completed(40)[0]
    assert dataclasses.replace(recipe, steps=500).completed(40)[0].head_steps == 50


def test_a_run_prints_and_keeps_its_defaults(folder):
    folder, result = folder
    assert "--classes_per_batch 5, all training classes" in result.out
    settings = settings_of(folder, "a")
    assert (settings["learning_rate"], settings["classes_per_batch"]) == (1e-4, 5)


@pytest.mark.parametrize(("sizes", "repeats"), [((2, 3), True), ((2, 4), False)])
def test_a_run_states_that_no_class_fills_its_share_of_a_batch(capsys, sizes, repeats):
    labels = np.repeat(range(len(sizes)), sizes)
    split = pipelines.Split(np.zeros((len(labels), 2, 2, 3), np.uint8), labels)
    train.with_defaults(Recipe(images_per_class=4), split)
    said = "--images_per_class 4 exceeds the largest class, which has 3 images: batches repeat"
    assert (said in capsys.readouterr().out) == repeats


def test_the_last_interval_may_be_short(folder):
    folder, result = folder
    assert steps_of(folder, "a") == 5
    assert len((folder / "runs/a/logs/epochs.csv").read_text().splitlines()) == 1 + 3
    assert "step 5 of 5" in result.out


def test_a_finished_run_is_trained_further(folder):
    folder, _ = folder
    before = json.loads((folder / "runs/a/scores.json").read_text())
    result = programs.run(train.main, "--run", "a", "--resume", cwd=folder)
    assert "is complete" in result.sentence
    assert "--steps" in result.sentence
    result = programs.run(train.main, "--run", "a", "--resume", "--steps", "8", cwd=folder)
    assert result.code == 0, result.err
    assert steps_of(folder, "a") == 8
    assert settings_of(folder, "a")["steps"] == 8
    assert {path.name for path in (folder / "saved_models/a").iterdir()} == {"1", "2"}
    after = json.loads((folder / "runs/a/scores.json").read_text())
    assert after["untrained"] == before["untrained"]
    assert after["trained"] != before["trained"]
    result = programs.run(train.main, "--run", "a", "--resume", "--steps", "6", cwd=folder)
    assert "--steps differs" in result.sentence


def test_a_run_has_one_writer(folder):
    folder, _ = folder
    with only_writer(folder / "runs" / "a"):
        result = programs.run(train.main, "--run", "a", "--resume", "--steps", "9", cwd=folder)
    assert "another process is training run 'a'" in result.sentence
    assert not (folder / "runs/a/.lock").stat().st_size


def test_a_run_that_another_process_has_just_begun_is_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_folders(RUNS / "x", {"config.yaml": "steps: 1"})
    with pytest.raises(FileExistsError, match="another process has just begun run 'x'"):
        make_folders(RUNS / "x", {"config.yaml": "steps: 2"})
    assert (tmp_path / "runs/x/config.yaml").read_text() == "steps: 1"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["x"]


def test_a_run_starts_from_the_weights_of_another(folder):
    folder, _ = folder
    arguments = [*SMALL, "--init_from", "a", "--steps", "0", "--run", "b"]
    result = programs.run(train.main, *arguments, cwd=folder)
    assert result.code == 0, result.err
    source = keras.models.load_model(folder / "runs/a/checkpoint.keras")
    exported = tf.saved_model.load(str(folder / "saved_models/b/1"))
    images = pipelines.load("digits").test.images[:8].astype("float32")
    begun = exported.signatures["embed_images"](images=tf.constant(images))["embedding"]
    np.testing.assert_allclose(begun, source.embed(images), atol=1e-6)


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


def test_a_run_from_another_knows_its_classes_and_goes_on_without_it(tmp_path):
    photos = write_images(tmp_path / "photos", dict.fromkeys(("a", "b", "c", "d"), 2))
    small = ["--dataset", "folder", "--data_dir", photos, "--image_size", "8"]
    small += ["--loss", "triplet", "--embedding_dim", "4", "--steps", "1"]
    first = programs.run(train.main, *small, "--run", "first", cwd=tmp_path)
    assert first.code == 0, first.err
    write_images(photos, {"aa": 2, "ab": 2})  # now b is a class to score
    start = ["--run", "second", "--init_from", "first"]
    second = programs.run(train.main, *small, *start, cwd=tmp_path)
    assert second.code == 0, second.err
    shutil.rmtree(tmp_path / "runs" / "first")
    go_on = ["--run", "second", "--resume", "--steps", "2"]
    third = programs.run(train.main, *go_on, cwd=tmp_path)
    assert third.code == 0, third.err
    for version, result in (("1", second), ("2", third)):
        assert "1 of the 3 scored classes were trained on, such as b" in result.err
        names = trained_classes(tmp_path / "saved_models" / "second" / version)
        assert names == ["a", "aa", "ab", "b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--init_from", "missing"], "`init_from` must be a run with a checkpoint"),
        (["--init_from", "a", "--weights", "imagenet"], "`weights` and `init_from`"),
        (
            ["--init_from", "a", "--embedding_dim", "8"],
            "of the run to start from, 4. Received: init_from='a', embedding_dim=8",
        ),
        (["--init_from", "a", "--image_size", "32"], "its images are 8×8×1"),
        (["--init_from", "runs/a/scores.json"], "`init_from` must be a run with a checkpoint"),
    ],
)
def test_rejects_a_start_that_does_not_fit(arguments, message, folder):
    result = programs.run(train.main, *SMALL, "--run", "c", *arguments, cwd=folder[0])
    assert message in result.sentence
    assert not (folder[0] / "runs" / "c").exists()


def test_a_run_that_ends_below_its_start_says_what_to_try(tmp_path, capsys):
    recipe, _ = Recipe(weights="imagenet", head_multiplier=1.0, steps=0).completed(40)
    scores = {
        "untrained": {"recall@1": 0.5},
        "scored_classes": "test",
        "train_seconds": 1.0,
        "train_seconds_from_step": 0,
    }
    for recall, sentence in (
        (0.6, None),
        (0.5, "Training did not raise Recall@1: 0.5000 → 0.5000."),
        (0.4, "Training did not raise Recall@1: 0.5000 → 0.4000."),
    ):
        scores["trained"] = {"recall@1": recall}
        train.report(recipe, tmp_path, scores, num_classes=40)
        out = capsys.readouterr().out
        printed = sentence is not None
        assert not printed or sentence in out
        for advice in (
            "--steps 500",
            "--loss npair",
            "--head_multiplier 10",
            "--classes_per_batch 40",
            "--learning_rate 1e-05",
        ):
            assert (advice in out) == printed, advice


@pytest.mark.parametrize(
    ("rate", "num_classes", "advice", "not_said"),
    [
        (0.1, 40, "The default learning rate, 0.001: leave out", "--learning_rate 0.01"),
        (0.001, 40, "--learning_rate 0.0001", "More classes"),
        (0.0001, 40, "--classes_per_batch 40", "--learning_rate"),
        (0.0001, 5, "More classes: 5 are few", "leave out"),
        (0.0001, 5, "More classes: 5 are few", "Another objective"),
    ],
)
def test_advice_depends_on_the_rate_and_the_classes(rate, num_classes, advice, not_said):
    recipe, _ = Recipe(learning_rate=rate).completed(num_classes)
    text = " ".join(outcome.what_to_try(recipe, num_classes, {}))
    assert advice in text
    assert not_said not in text


def test_a_learned_similarity_that_collapsed_is_stated(tmp_path, capsys):
    recipe, _ = Recipe(loss="pddm", steps=0).completed(40)
    scores = {
        "untrained": {"recall@1": 0.5, "similarity_auc": 0.5},
        "trained": {"recall@1": 0.6, "similarity_auc": 0.51},
        "scored_classes": "test",
        "train_seconds": 1.0,
        "train_seconds_from_step": 0,
        "improved": True,
    }
    for collapsed in (False, True):
        scores["similarity_collapsed"] = collapsed
        train.report(recipe, tmp_path, scores, num_classes=40)
        out = capsys.readouterr().out
        assert ("its ROC curve is 0.51" in out) == collapsed
        assert ("More steps: --steps 500" in out) == collapsed
        assert "--learning_rate" not in out  # a lower one would learn it later


def test_a_learned_similarity_is_judged_by_pairs(tmp_path):
    arguments = ["--dataset", "digits", "--loss", "pddm", "--embedding_dim", "4"]
    arguments += ["--steps", "2", "--run", "learned"]
    with few_digits():
        result = programs.run(train.main, *arguments, cwd=tmp_path)
        test = pipelines.load("digits").test
    assert result.code == 0, result.err
    scores = json.loads((tmp_path / "runs/learned/scores.json").read_text())
    model = keras.models.load_model(tmp_path / "runs/learned/checkpoint.keras")
    rows = model.embed(test.images)
    auc = outcome.similarity_auc(rows, test.labels, model.similarity)
    assert scores["trained"]["similarity_auc"] == pytest.approx(auc, abs=1e-3)
    assert scores["similarity_collapsed"] == (auc < outcome.COLLAPSED)


def test_a_similarity_by_class_is_distinguished_from_chance(rng):
    labels = np.repeat(np.arange(5), 4)
    embeddings = np.eye(5)[labels]

    def knowing(a, b):
        return np.sum(a * b, axis=1)

    def guessing(a, b):
        return rng.uniform(size=len(a))

    assert outcome.similarity_auc(embeddings, labels, knowing) == 1
    assert outcome.similarity_auc(embeddings, labels, guessing) == pytest.approx(0.5, abs=0.05)


def test_images_are_listed_before_tensorflow_is_imported(tmp_path):
    names = [f"{kind}/{i}.png" for kind in ("ant", "bee", "cat", "dog") for i in range(2)]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"no image")
    arguments = ["--dataset", "folder", "--data_dir", str(tmp_path), "--classes_per_batch", "9"]
    program = (
        "import sys, train\ntry:\n    train.main()\nfinally:\n"
        "    assert 'tensorflow' not in sys.modules"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert result.stderr.endswith("Received: classes_per_batch=9, classes=2\n")


def test_the_scores_state_whether_training_improved_them(folder):
    scores = json.loads((folder[0] / "runs/a/scores.json").read_text())
    recalls = [scores[stage]["recall@1"] for stage in ("untrained", "trained")]
    assert scores["improved"] == (recalls[1] > recalls[0])


def test_only_layers_with_a_multiplier_train_in_the_first_steps():
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(4, name="old"), keras.layers.Dense(2, name="new")]
    )
    optimizer = optimizers.SGD(0.1, multipliers={"/new/": 2.0}, head_steps=2)
    model.compile(optimizer, "mse")
    x, y = np.ones((4, 3)), np.ones((4, 2))
    kernels = {name: model.get_layer(name).kernel.numpy() for name in ("old", "new")}
    for moves in (False, False, True):
        model.train_on_batch(x, y)
        assert (model.get_layer("old").kernel.numpy() != kernels["old"]).any() == moves
        assert (model.get_layer("new").kernel.numpy() != kernels["new"]).any()
    assert optimizers.SGD.from_config(optimizer.get_config()).head_steps == 2


@pytest.mark.parametrize(("embedding_dim", "steps"), [(4, 5), (None, 0)])
def test_no_steps_are_for_new_layers_where_there_are_none(embedding_dim, steps):
    recipe = Recipe(loss="triplet", embedding_dim=embedding_dim, head_steps=5, steps=50)
    digits = pipelines.load("digits")
    model = train.build_model(recipe.completed(5)[0], digits.train, digits)
    assert model.optimizer.head_steps == steps


def test_progress_is_printed_at_every_tenth(capsys):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((100, 1))
    lines = callbacks.ProgressLines(steps=100)
    model.fit(x, x, batch_size=1, verbose=0, callbacks=[lines, callbacks.StopAt(40)])
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in printed] == ["10", "20", "30", "40"]
    assert int(model.optimizer.iterations) == 40


def test_progress_has_the_loss_since_the_line_before(capsys):
    lines = callbacks.ProgressLines(steps=10)
    lines.set_model(types.SimpleNamespace(optimizer=types.SimpleNamespace(iterations=0)))
    lines.on_train_begin()
    for epoch in ([1.0, 3.0, 5.0], [7.0]):
        lines.on_epoch_begin(0)
        for batch in range(len(epoch)):
            lines.model.optimizer.iterations += 1
            lines.on_train_batch_end(batch, {"loss": np.mean(epoch[: batch + 1])})
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[5] for line in printed] == ["1.0000", "3.0000", "5.0000", "7.0000"]


@pytest.mark.parametrize("dim", [65_537, 5_000_000])
def test_an_embedding_beyond_reason_is_rejected(dim, tmp_path):
    result = programs.run(train.main, "--embedding_dim", dim, cwd=tmp_path)
    assert f"`embedding_dim` must be <= 65,536. Received: embedding_dim={dim}" in result.sentence
