"""train.py and evaluate.py as a user runs them: in processes of their own."""

import dataclasses
import inspect
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml
from PIL import Image

import evaluate
import pipelines
import tfdml
import train
from tfdml.evaluation import distance_statistics, recall_at_k
from tfdml.recipes import Recipe
from tfdml.serving import exported

ROOT = pathlib.Path(__file__).parents[1]
SMALL = [
    *("--dataset", "digits", "--classes_per_batch", "5", "--embedding_dim", "16"),
    *("--steps", "60", "--checkpoint_every", "20"),
]

HARD_NEIGHBOURS = ["--sampler", "pairs", "--sampler_options.hard_neighbours", "true"]


def run(script, *arguments, cwd):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, str(ROOT / script), *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
    )


def sentence(result):
    """The one sentence of a refusal."""
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder in which a small run has finished, and what it printed."""
    folder = tmp_path_factory.mktemp("finished")
    result = run("train.py", "--loss", "triplet", "--run", "small", *SMALL, cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder, result.stdout


def test_a_run_improves_the_retrieval_of_unseen_classes(finished):
    folder, printed = finished
    scores = json.loads((folder / "runs" / "small" / "scores.json").read_text())
    assert scores["trained"]["recall@1"] > scores["untrained"]["recall@1"] > 0.3
    for stage in ("untrained", "trained"):
        assert f"{scores[stage]['recall@1']:.4f}" in printed


def test_a_run_leaves_what_the_readme_says(finished):
    folder, _ = finished
    written = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    for name in ("config.yaml", "checkpoint.keras", "scores.json", "training.png"):
        assert f"runs/small/{name}" in written
    assert any("tfevents" in name for name in written)
    assert "saved_models/small/1/saved_model.pb" in written
    assert not [name for name in written if "unfinished" in name]
    lines = (folder / "runs" / "small" / "logs" / "epochs.csv").read_text().splitlines()
    assert len(lines) == 1 + 3
    settings = yaml.safe_load((folder / "runs" / "small" / "config.yaml").read_text())
    assert settings["loss"] == "triplet"
    assert settings["steps"] == 60


def test_the_saved_model_scores_what_the_run_reported(finished):
    folder, _ = finished
    digits = pipelines.load("digits")
    embed = tf.saved_model.load(str(folder / "saved_models" / "small" / "1")).signatures
    images = tf.constant(digits.test.images, tf.float32)
    embeddings = embed["embed_images"](images=images)["embedding"].numpy()
    reported = json.loads((folder / "runs" / "small" / "scores.json").read_text())["trained"]
    assert reported["recall@1"] == pytest.approx(
        recall_at_k(embeddings, digits.test.labels)[1], abs=2e-3
    )


def test_evaluate_scores_the_saved_model_on_its_own_data(finished):
    folder, _ = finished
    result = run("evaluate.py", "saved_models/small", "--k", "2", cwd=folder)
    assert result.returncode == 0, result.stderr
    scores = json.loads((folder / "runs" / "small" / "evaluation.json").read_text())["scores"]
    reported = json.loads((folder / "runs" / "small" / "scores.json").read_text())["trained"]
    assert scores["recall@2"] == pytest.approx(reported["recall@2"], abs=2e-3)
    at_2 = {f"{name}@2" for name in ("recall", "precision", "ndcg")}
    assert set(scores) == {*at_2, "map", "map@r", "r_precision", "mrr", "nmi", "ami", "f1"}
    assert 0 < scores["nmi"] <= 1
    assert f"{scores['nmi']:.4f}" in result.stdout


def test_evaluate_tells_the_distances_that_it_ranks_by(finished, version, capsys):
    evaluate_here(version)
    told = evaluation_of("evaluation")["distances"]
    model = keras.models.load_model(finished[0] / "runs" / "small" / "checkpoint.keras")
    test = pipelines.load("digits").test
    embeddings = model.embed(pipelines.evaluation_batches(test))
    expected = distance_statistics(embeddings, test.labels)
    assert told == {name: pytest.approx(value, rel=1e-3) for name, value in expected.items()}
    printed = capsys.readouterr().out
    assert "Distances of all pairs of embeddings, and their LDA score:" in printed
    for name, value in told.items():
        assert f"{name:>17}  {value:.4f}" in printed


@pytest.mark.filterwarnings("ignore:1 of 3 queries")
def test_evaluate_tells_no_distances_without_pairs_of_both_kinds(version, tmp_path):
    photos = write_images(tmp_path / "photos", {"a": 1, "b": 2, "c": 2})
    (photos / "c").rename(tmp_path / "c")
    evaluate_here(version, "--dataset", "folder", "--data_dir", photos)
    assert "distances" not in evaluation_of("evaluation_folder_photos")
    evaluate_here(version, "--dataset", "folder", "--data_dir", photos, "--split", "all")
    assert evaluation_of("evaluation_folder_photos_all")["distances"]["positive_variance"] == 0


def test_a_killed_run_resumes_with_the_batches_it_would_have_had(finished, tmp_path):
    arguments = ["--loss", "triplet", "--run", "small", *SMALL]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *arguments],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    checkpoint = tmp_path / "runs" / "small" / "checkpoint.keras"
    while not checkpoint.exists():
        assert process.poll() is None, "the run ended before it was killed"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "saved_models" / "small").exists()
    stopped_at = int(keras.models.load_model(checkpoint).optimizer.iterations)
    assert stopped_at in (20, 40)

    resumed = run("train.py", "--run", "small", "--resume", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    whole = finished[0] / "runs" / "small"
    # The same batches give the same losses, up to the order in which threads add floats.
    losses = [
        np.genfromtxt(folder / "logs" / "epochs.csv", delimiter=",", names=True)["loss"]
        for folder in (tmp_path / "runs" / "small", whole)
    ]
    np.testing.assert_allclose(losses[0][-1], losses[1][-1], rtol=0.05)
    trained = [
        keras.models.load_model(folder / "checkpoint.keras")
        for folder in (tmp_path / "runs" / "small", whole)
    ]
    assert [int(model.optimizer.iterations) for model in trained] == [60, 60]
    again = run("train.py", "--run", "small", "--resume", cwd=tmp_path)
    assert "run 'small' is complete" in sentence(again)


def test_a_run_killed_before_its_first_checkpoint_resumes(tmp_path):
    import train

    folder = tmp_path / "runs" / "x"
    saved_recipe = train.parse(["--run", "x", *SMALL])[-1]
    (folder / "logs").mkdir(parents=True)
    (folder / "config.yaml").write_text(saved_recipe)
    resumed = run("train.py", "--run", "x", "--resume", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    scores = json.loads((folder / "scores.json").read_text())
    assert scores["train_seconds_from_step"] == 0
    assert (tmp_path / "saved_models" / "x" / "1" / "saved_model.pb").is_file()


def test_a_run_killed_in_its_export_resumes(finished, tmp_path):
    shutil.copytree(finished[0] / "runs", tmp_path / "runs")
    (tmp_path / "saved_models" / "small" / ".unfinished-1-x").mkdir(parents=True)
    scores = (tmp_path / "runs" / "small" / "scores.json").read_text()
    resumed = run("train.py", "--run", "small", "--resume", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert [path.name for path in (tmp_path / "saved_models" / "small").iterdir()] == ["1"]
    assert (tmp_path / "runs" / "small" / "scores.json").read_text() == scores


def test_resume_refuses_other_settings(finished):
    result = run("train.py", "--run", "small", "--resume", "--seed", "1", cwd=finished[0])
    assert "--seed differs from the run's: 1, was 0" in sentence(result)


def test_resume_refuses_a_broken_checkpoint(tmp_path):
    folder = tmp_path / "runs" / "x"
    (folder / "logs").mkdir(parents=True)
    (folder / "config.yaml").write_text("dataset: digits\nclasses_per_batch: 5\nrun: x\n")
    (folder / "checkpoint.keras").write_bytes(b"half a file")
    message = sentence(run("train.py", "--run", "x", "--resume", cwd=tmp_path))
    assert "checkpoint.keras cannot be read" in message
    assert "start over" in message


def test_resume_needs_a_run(tmp_path):
    assert "--resume needs --run NAME" in sentence(run("train.py", "--resume", cwd=tmp_path))


def test_a_diverging_run_stops_with_step_and_cause(tmp_path):
    options = ["--learning_rate", "1e30", "--optimizer", "sgd", "--schedule", "constant"]
    result = run("train.py", "--loss", "lifted", "--run", "x", *SMALL, *options, cwd=tmp_path)
    assert "the loss diverged: lower the learning rate (now 1e+30)" in sentence(result)
    assert not (tmp_path / "saved_models" / "x").exists()


def test_weights_that_diverge_in_the_last_step_are_not_saved(tmp_path):
    options = ["--learning_rate", "1e38", "--run", "x", *SMALL]
    options += ["--steps", "1", "--checkpoint_every", "1", "--optimizer", "sgd"]
    error = sentence(run("train.py", *options, cwd=tmp_path))
    assert "not finite at step 1; the loss diverged: lower the learning rate" in error
    assert not list(tmp_path.rglob("*.keras"))


def test_a_frozen_similarity_is_not_trained(tmp_path):
    options = ["--loss_options.similarity", '{"trainable": false}', "--run", "x", *SMALL]
    options += ["--steps", "1", "--checkpoint_every", "1"]
    result = run("train.py", "--loss", "pddm", *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_a_run_goes_on_with_the_classes_that_it_began_with(tmp_path):
    photos = write_images(tmp_path / "photos", dict.fromkeys("bcde", 2))
    data = ["--dataset", "folder", "--data_dir", photos, "--image_size", "16", "--run", "x"]
    options = ["--classes_per_batch", "2", "--steps", "100000", "--checkpoint_every", "20"]
    process = start_and_wait_for("Epoch 2/", *data, *options, cwd=tmp_path)
    process.kill()
    process.communicate()
    write_images(photos, {"a": 2})
    refusal = sentence(run("train.py", "--run", "x", "--resume", cwd=tmp_path))
    assert "the classes to train are not those that runs/x began with" in refusal


def test_a_full_disk_gets_a_sentence_and_leaves_no_half_file(tmp_path):
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));"
        f"sys.path.insert(0, {str(ROOT)!r}); sys.argv[0] = 'train.py'; import train; train.main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", limited, "--loss", "triplet", "--run", "x", *SMALL],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "File too large" in sentence(result)
    assert not list(tmp_path.rglob("*.keras"))
    assert not list((tmp_path / "saved_models").iterdir())


def write_images(folder, classes):
    rng = np.random.default_rng(0)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            picture = rng.integers(0, 256, (16, 16, 3)).astype("uint8")
            Image.fromarray(picture).save(folder / name / f"{number}.png")
    return folder


def test_trains_on_a_folder_of_images_and_serves_their_bytes(tmp_path):
    photos = write_images(tmp_path / "photos", dict.fromkeys("abcdefgh", 4))
    options = ["--classes_per_batch", "4", "--steps", "2", "--checkpoint_every", "1"]
    data = ["--dataset", "folder", "--data_dir", photos, "--image_size", "16"]
    result = run("train.py", "--loss", "npair", *options, *data, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    version = tmp_path / "saved_models" / "folder_npair" / "1"
    serve = tf.saved_model.load(str(version)).signatures["serving_default"]
    contents = [(photos / "h" / f"{number}.png").read_bytes() for number in range(4)]
    served = serve(image_bytes=tf.constant(contents))["embedding"].numpy()
    model = keras.models.load_model(tmp_path / "runs" / "folder_npair" / "checkpoint.keras")
    dataset = pipelines.load("folder", data_dir=photos)
    last = dataset.test.subset(slice(-4, None))
    expected = model.embed(pipelines.evaluation_batches(last, (16, 16, 3)))
    np.testing.assert_allclose(served, expected, atol=1e-5)
    again = run("train.py", "--loss", "npair", *options, *data, cwd=tmp_path)
    assert (tmp_path / "saved_models" / "folder_npair_2" / "1").is_dir(), again.stderr


def test_trains_and_scores_on_what_is_in_the_boxes(tmp_path):
    photos = write_images(tmp_path / "photos", {"a": 2, "b": 2, "c": 2, "d": 2})
    paths = sorted(path.relative_to(photos) for path in photos.rglob("*.png"))
    lines = "".join(f"{path},{number},1,16,15\n" for number, path in enumerate(paths))
    (tmp_path / "boxes.csv").write_text(f"path,x1,y1,x2,y2\n{lines}")
    data = ["--dataset", "folder", "--data_dir", str(photos), "--classes_per_batch", "2"]
    boxes = ["--boxes", str(tmp_path / "boxes.csv"), "--run", "unused"]
    recipe, _, _ = train.parse([*data, *boxes])
    train_split, (test_split, _), _ = train.load_images(recipe)
    left = [split.boxes[:, 0].tolist() for split in (train_split, test_split)]
    assert left == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.data
def test_trains_on_groups_of_kin_classes(data_folder, tmp_path):
    data = ["--dataset", "omniglot", "--data_dir", data_folder / "tfds", "--sampler", "groups"]
    options = ["--sampler_options.evenly", "true", "--sampler_options.super_classes", "4"]
    steps = ["--steps", "2", "--checkpoint_every", "1", "--run", "x"]
    result = run("train.py", *data, *options, *steps, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    settings = yaml.safe_load((tmp_path / "runs" / "x" / "config.yaml").read_text())
    assert settings["sampler_options"] == {"evenly": True, "super_classes": 4}
    losses = np.genfromtxt(tmp_path / "runs/x/logs/epochs.csv", delimiter=",", names=True)["loss"]
    assert np.isfinite(losses).all()
    assert len(losses) == 2


def test_trains_and_scores_queries_in_the_gallery_of_a_dataset(tmp_path, monkeypatch):
    digits = pipelines.load("digits")
    queries = np.arange(len(digits.test.labels)) % 4 == 0
    parts = {"test": digits.test.subset(queries), "gallery": digits.test.subset(~queries)}
    dataset = dataclasses.replace(digits, **parts)
    monkeypatch.setattr(pipelines, "load", lambda *_, **__: dataset)
    monkeypatch.chdir(tmp_path)
    train.main([*SMALL, "--steps", "20", "--run", "apart", "--dataset", "digits"])
    reported = json.loads(pathlib.Path("runs/apart/scores.json").read_text())["trained"]
    evaluate.main(["saved_models/apart", "--nmi=false"])
    scored = json.loads(pathlib.Path("runs/apart/evaluation.json").read_text())["scores"]
    assert reported["recall@1"] == pytest.approx(scored["recall@1"], abs=5e-3)
    evaluate.main(["saved_models/apart", "--nmi=false", "--split", "all"])


def small_dataset():
    """Classes of 2 to 4 random images, in super-classes of 3."""
    labels = np.repeat(np.arange(12), [2, 3, 4] * 4)
    images = np.random.default_rng(0).integers(0, 256, (36, 8, 8, 1), dtype=np.uint8)
    augmentation = pipelines.Augmentation(crop=0.5, shift=0.1, colour=0.1)
    train_split = pipelines.Split(images, labels, super_labels=labels // 3)
    return pipelines.Dataset(
        "x", train_split, pipelines.Split(images, labels + 12), (8, 8, 1), augmentation
    )


@pytest.mark.parametrize(
    ("sampler", "options", "most_sizes"),
    [
        ("groups", {}, 5),
        ("whole_classes", {}, 2),
        ("pairs", {"reshuffle": True}, 1),
        ("pairs", {"hard_neighbours": True}, 1),
    ],
)
def test_a_model_trains_with_the_batches_of_every_sampler(sampler, options, most_sizes):
    dataset = small_dataset()
    recipe = Recipe(
        sampler=sampler,
        sampler_options=options,
        classes_per_batch=4,
        images_per_class=3,
        steps=8,
        checkpoint_every=4,
    )
    model = train.build_model(recipe, dataset.train, dataset)
    batches, callbacks = train.training_batches(recipe, 0, dataset.train, dataset)
    fitted = {"epochs": 2, "callbacks": callbacks, "shuffle": False, "verbose": 0}
    history = model.fit(batches, steps_per_epoch=4, **fitted)
    assert np.isfinite(history.history["loss"]).all()
    assert int(model.optimizer.iterations) == 8
    if not callbacks:
        sizes = {len(labels) for _, labels in batches.take(20)}
        assert max(sizes) == 12
        assert min(2, most_sizes) <= len(sizes) <= most_sizes


def test_hard_neighbours_are_those_of_the_checkpoint_when_a_run_resumes(tmp_path):
    dataset = small_dataset()
    recipe = Recipe(
        sampler="pairs",
        sampler_options={"hard_neighbours": True},
        classes_per_batch=4,
        images_per_class=2,
        steps=9,
        checkpoint_every=3,
    )

    def batches_of_fit(model, folder):
        (folder / "logs").mkdir(parents=True)
        seen = []

        def note(images):
            seen.append(images)
            return images

        def noted(images, labels):
            images = tf.ensure_shape(tf.numpy_function(note, [images], tf.float32), images.shape)
            return images, labels

        class KeepCheckpoints(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                shutil.copy(folder / "checkpoint.keras", folder / f"{epoch}.keras")

        step = int(model.optimizer.iterations)
        batches, callbacks = train.training_batches(recipe, step, dataset.train, dataset)
        callbacks = [*callbacks, KeepCheckpoints()]
        train.fit(recipe, folder, model, batches.map(noted), callbacks, dataset.scored(), dataset)
        return np.stack(seen)

    whole = batches_of_fit(train.build_model(recipe, dataset.train, dataset), tmp_path / "whole")
    assert len(whole) == 9
    stopped = keras.models.load_model(tmp_path / "whole" / "1.keras")
    resumed = batches_of_fit(stopped, tmp_path / "resumed")
    np.testing.assert_array_equal(resumed, whole[6:])


def test_a_run_refreshes_hard_neighbours_at_every_checkpoint(tmp_path):
    result = run("train.py", *SMALL, *HARD_NEIGHBOURS, "--run", "x", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    scores = json.loads((tmp_path / "runs" / "x" / "scores.json").read_text())
    assert scores["trained"]["recall@1"] > scores["untrained"]["recall@1"]


@pytest.mark.parametrize("sampler", train.SAMPLER_OPTIONS)
def test_options_of_samplers_are_those_of_their_batches(sampler):
    batches = {"groups": pipelines.group_batches, "pairs": pipelines.pair_batches}[sampler]
    parameters = inspect.signature(batches).parameters.values()
    options = [option.name for option in parameters if option.kind == option.KEYWORD_ONLY]
    assert [*train.SAMPLER_OPTIONS[sampler], "preprocessing"] == options


def start_and_wait_for(text, *arguments, cwd):
    """A run of train.py that has printed the text."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # It must hear Ctrl-C, which a shell keeps from what it starts in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for line in process.stdout:
        if text in line:
            return process
    raise AssertionError(process.stderr.read())


def test_an_image_lost_in_training_is_named(tmp_path):
    photos = write_images(tmp_path / "photos", dict.fromkeys("abcd", 3))
    data = ["--dataset", "folder", "--data_dir", photos, "--image_size", "16", "--run", "x"]
    options = ["--classes_per_batch", "2", "--steps", "100000", "--checkpoint_every", "20"]
    process = start_and_wait_for("Epoch 2/", *data, *options, cwd=tmp_path)
    lost = photos / "a" / "1.png"
    lost.rename(tmp_path / "1.png")
    error = process.communicate()[1]
    assert process.returncode == 2, error
    assert error.strip().splitlines()[-1] == (
        f"train.py: error: {lost} cannot be read (missing): mend it, or begin anew with "
        "--skip_invalid true, which leaves out all such images; python -m pipelines.check lists "
        "them. Go on with: python train.py --run x --resume"
    )
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("stage", "options"),
    [("Scoring the untrained", []), ("Epoch 2/", []), ("Epoch 2/", HARD_NEIGHBOURS)],
)
def test_ctrl_c_says_how_to_go_on(stage, options, tmp_path):
    options = [*SMALL, *options, "--steps", "100000", "--run", "x"]
    process = start_and_wait_for(stage, *options, cwd=tmp_path)
    process.send_signal(signal.SIGINT)
    error = process.communicate()[1]
    assert process.returncode == 130, error
    # TensorFlow may print what it was about before that.
    assert error.endswith("\nStopped. Go on with: python train.py --run x --resume\n")


def test_a_test_split_of_a_few_images_is_scored_by_the_neighbours_it_has(tmp_path):
    photos = write_images(tmp_path / "photos", dict.fromkeys("abcd", 2))
    data = ["--dataset", "folder", "--data_dir", photos, "--image_size", "16", "--run", "x"]
    options = ["--classes_per_batch", "2", "--steps", "1", "--checkpoint_every", "1"]
    result = run("train.py", *data, *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    scores = json.loads((tmp_path / "runs" / "x" / "scores.json").read_text())
    assert list(scores["trained"]) == list(scores["untrained"]) == ["recall@1", "recall@2"]


def test_validation_classes_are_training_classes(tmp_path):
    options = ["--validation_share", "0.4", "--classes_per_batch", "3", "--steps", "2"]
    options += ["--checkpoint_every", "1", "--dataset", "digits"]
    result = run("train.py", *options, "--run", "x", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "of 3 classes to train" in result.stdout
    assert "Unseen validation classes" in result.stdout
    log = (tmp_path / "runs" / "x" / "logs" / "epochs.csv").read_text()
    assert "val_recall@1" in log.splitlines()[0]


@pytest.mark.parametrize("script", ["train.py", "evaluate.py"])
def test_help_names_every_choice_without_tensorflow(script, tmp_path):
    result = run(script, "--help", cwd=tmp_path)
    assert result.returncode == 0
    for name in pipelines.names():
        assert name in result.stdout
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {script[:-3]} as script\n"
    program += "try: script.parse(['--help'])\nexcept SystemExit: pass\n"
    program += "assert not {'tensorflow', 'keras', 'sklearn', 'numpy'} & set(sys.modules)"
    light = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert light.returncode == 0, light.stderr


NO_DATA = ["--dataset", "folder", "--data_dir", "missing"]
REFUSALS = [
    (["--loss", "liftd"], "Unknown loss 'liftd'. Did you mean 'lifted'?"),
    (["--dataset", "glyps"], "Unknown dataset 'glyps'. Did you mean 'glyphs'?"),
    (["--backbone", "smal_cnn"], "Unknown backbone 'smal_cnn'. Did you mean 'small_cnn'?"),
    (["--lss", "lifted"], "Did you mean --loss?"),
    (
        ["--loss_options", "null"],
        "error: `loss_options` must be options, such as {name: value}. Received: loss_options=None",
    ),
    (
        ["--steps", "1e3"],
        "error: `steps` must be an integer. Received: steps=1000.0",
    ),
    (
        ["--config", str(ROOT / "tests" / "misspelt.yaml")],
        "misspelt.yaml: Option 'stpes' is not accepted. Did you mean --steps?",
    ),
    (
        ["--loss_options.similarity.dropout", "0"],
        """similarity.dropout is too deep: give --loss_options.similarity '{"dropout": ...}'""",
    ),
    (["--steps", "150"], "`checkpoint_every` must divide `steps`. Received: steps=150"),
    (["--images_per_class", "1"], "`images_per_class` must be >= 2"),
    (["--classes_per_batch", "1"], "`classes_per_batch` must be >= 2: one class has no negative"),
    (["--embedding_dim", "0"], "`embedding_dim` must be > 0. Received: embedding_dim=0"),
    (["--dropout", "1"], "`dropout` must be >= 0 and < 1. Received: dropout=1.0"),
    (["--seed", "4294967296"], "`seed` must be >= 0 and < 2**32. Received: seed=4294967296"),
    (["--run", "a/b"], "`run` must be the name of a folder, of 100 characters at most. Received"),
    (["--run", "a" * 101], "`run` must be the name of a folder, of 100 characters at most. Rec"),
    (["--run", "a\nb"], "`run` must be the name of a folder, of 100 characters at most. Received"),
    (["--loss_options.magrin", "1", *NO_DATA], "has no option 'magrin'. Did you mean 'margin'?"),
    (["--loss_options.margin", "-1", *NO_DATA], "`margin` must be > 0. Received: margin=-1"),
    (["--augmentation.flp", "true", *NO_DATA], "has no option 'flp'. Did you mean 'flip'?"),
    (
        ["--sampler", "groups", "--sampler_options.evnly", "true", *NO_DATA],
        "sampler 'groups' has no option 'evnly'. Did you mean 'evenly'?",
    ),
    (
        ["--sampler_options.evenly", "true"],
        "`sampler_options` are those of the samplers `groups` and `pairs`. Received: "
        "sampler='balanced', sampler_options={'evenly': True}",
    ),
    (
        ["--sampler", "pairs", "--sampler_options.hard_neighbors", "true", *NO_DATA],
        "sampler 'pairs' has no option 'hard_neighbors'. Did you mean 'hard_neighbours'?",
    ),
    (
        ["--sampler", "pairs", "--sampler_options.hard_neighbours", "3", *NO_DATA],
        "`hard_neighbours` must be true or false. Received: hard_neighbours=3",
    ),
    (
        ["--sampler", "pair", *NO_DATA],
        "'whole_classes', 'pairs'. Received: sampler='pair'",
    ),
    (
        ["--sampler", "whole_classes", "--dataset", "digits"],
        "`batch_size` must be 2 more than the largest class has, or above, so that every batch has",
    ),
    (
        ["--sampler", "groups", "--dataset", "digits", "--classes_per_batch", "4"],
        "groups need `super_labels`, the super-class of each image, such as the alphabets of",
    ),
    (["--dataset", "digits"], "`classes_per_batch` must not exceed the number of training classes"),
    (NO_DATA, "there is no missing"),
    (
        ["--weights", "missing.h5", "--dataset", "folder", "--data_dir", "."],
        "`weights` must be an existing file",
    ),
    (["--config", "missing.yaml"], "missing.yaml"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), REFUSALS, ids=["".join(r[0][:4]) for r in REFUSALS]
)
def test_train_refuses_bad_input_with_a_sentence(arguments, message, tmp_path):
    result = run("train.py", *arguments, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert message in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_sampler_refuses_the_images_before_density_measures_them(tmp_path):
    options = ["--loss", "density", "--dataset", "digits", "--sampler", "whole_classes"]
    result = run("train.py", *options, cwd=tmp_path)
    assert "`batch_size` must be 2 more than the largest class has" in result.stderr
    assert "Measuring" not in result.stdout


def test_train_refuses_a_run_that_exists(finished):
    result = run("train.py", "--run", "small", *SMALL, cwd=finished[0])
    assert "run 'small' exists. Choose another --run, or go on with --resume" in sentence(result)


def test_train_refuses_a_folder_it_cannot_write(tmp_path):
    (tmp_path / "runs").write_text("a file where the folder should be")
    result = run("train.py", "--run", "x", *NO_DATA, cwd=tmp_path)
    assert f"cannot write to {tmp_path / 'runs'}" in sentence(result)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_train_refuses_classes_to_score_without_pairs(tmp_path):
    photos = write_images(tmp_path / "photos", {"a": 2, "b": 2, "c": 1, "d": 1})
    data = ["--dataset", "folder", "--data_dir", photos, "--classes_per_batch", "2"]
    message = sentence(run("train.py", *data, cwd=tmp_path))
    assert "a class to score must have 2 images or more" in message
    assert "Received: images=2, classes=2" in message
    assert not (tmp_path / "runs").exists()


def test_train_names_the_image_that_cannot_be_read(tmp_path):
    photos = write_images(tmp_path / "photos", {"a": 2, "b": 2})
    (photos / "a" / "empty.png").write_bytes(b"")
    result = run("train.py", "--dataset", "folder", "--data_dir", photos, cwd=tmp_path)
    assert "empty.png (0 bytes)" in sentence(result)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("content", ["steps: [1\nloss", "", "- 1\n- 2", "steps:\n  many"])
def test_a_broken_config_gets_one_line_with_its_name(content, tmp_path):
    (tmp_path / "x.yaml").write_text(content)
    result = run("train.py", "--config", "x.yaml", cwd=tmp_path)
    assert result.stderr.startswith("train.py: error: x.yaml: ")
    assert len(sentence(result)) == len(result.stderr.strip()) > len("train.py: error: x.yaml: ")


@pytest.mark.parametrize("script", ["train.py", "evaluate.py"])
def test_runs_without_docstrings(script):
    command = [sys.executable, "-OO", str(ROOT / script), "--help"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("seed", ["-1", "4294967296"])
def test_evaluate_refuses_seeds_that_numpy_has_not(seed, tmp_path):
    result = run("evaluate.py", "model", "--seed", seed, cwd=tmp_path)
    assert "`seed` must be >= 0 and < 2**32" in sentence(result)


def test_evaluate_refuses_what_is_no_model(tmp_path):
    assert "no SavedModel at missing" in sentence(run("evaluate.py", "missing", cwd=tmp_path))


def evaluate_here(*arguments):
    """evaluate.py in this process, which has TensorFlow already."""
    evaluate.main([*map(str, arguments), "--nmi", "false", "--k", "1"])


@pytest.fixture
def version(finished, tmp_path, monkeypatch):
    """A copy of the version that the small run exported; the working folder is an empty one."""
    version = tmp_path / "saved_models" / "small" / "1"
    shutil.copytree(finished[0] / "saved_models" / "small" / "1", version)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return version


@pytest.mark.filterwarnings("ignore:1 of 5 queries")
def test_evaluate_scores_half_a_folder_or_all_of_it(version, tmp_path, capsys):
    photos = write_images(tmp_path / "photos", {"a": 1, "b": 2, "c": 2})
    data = ["--dataset", "folder", "--data_dir", photos]
    evaluate_here(version, *data)
    assert "on 4 images of 2 classes (test) of folder" in capsys.readouterr().out
    evaluate_here(version, *data, "--split", "all")
    assert "on 5 images of 3 classes (all) of folder" in capsys.readouterr().out
    assert sorted(path.name for path in pathlib.Path("runs", "small").glob("*.json")) == [
        "evaluation_folder_photos.json",
        "evaluation_folder_photos_all.json",
    ]


def test_a_set_of_tfds_names_its_runs_and_its_scores(version, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe, *_ = train.parse(["--dataset", "tfds:mnist:3.0.1"])
    assert (recipe.dataset, recipe.run) == ("tfds:mnist:3.0.1", "tfds_mnist_3.0.1_lifted")
    settings = evaluate.parse([str(version), "--dataset", "tfds:caltech/birds"])
    settings = evaluate.completed(settings, version, exported.recipe_of(version))
    assert pathlib.Path(settings.out).name == "evaluation_tfds_caltech_birds.json"


def test_images_of_a_csv_file_are_trained_on_and_scored_in_their_boxes(version, tmp_path, capsys):
    write_images(tmp_path / "photos", dict.fromkeys("abcd", 2))
    rows = ["path,label,x1,y1,x2,y2"]
    for path in sorted((tmp_path / "photos").rglob("*.*")):
        rows.append(f"{path.relative_to(tmp_path)},{path.parent.name},1,2,5,4")
    table = tmp_path / "images.csv"
    table.write_text("\n".join(rows))
    data = ["--dataset", "csv", "--data_dir", str(table), "--boxes", "annotated"]
    recipe, *_ = train.parse([*data, "--classes_per_batch", "2"])
    split, *_ = train.load_images(recipe)
    assert split.boxes.tolist() == [[1, 2, 5, 4]] * 4
    assert "csv: 4 images of 2 classes to train, 4 of 2 to score" in capsys.readouterr().out
    evaluate_here(version, *data, "--split", "all")
    evaluate_here(version, *data[:4], "--split", "all")
    assert sorted(path.name for path in pathlib.Path("runs", "small").glob("*.json")) == [
        "evaluation_csv_images.csv_all.json",
        "evaluation_csv_images.csv_in_annotated_all.json",
    ]


def change_recipe(version, **settings):
    path = version / "assets.extra" / "metadata.json"
    metadata = json.loads(path.read_text())
    assert settings.keys() <= metadata["recipe"].keys()
    metadata["recipe"].update(settings)
    path.write_text(json.dumps(metadata))


def test_evaluate_leaves_the_boxes_of_the_training_to_its_images(version, tmp_path):
    photos = write_images(tmp_path / "photos", {"a": 2, "b": 2})
    change_recipe(version, boxes="annotated")
    evaluate_here(version, "--dataset", "folder", "--data_dir", photos)
    content = json.loads(pathlib.Path("runs/small/evaluation_folder_photos.json").read_text())
    assert content["boxes"] is None


def test_evaluate_warns_of_classes_that_were_trained_on(version, capsys):
    evaluate_here(version, "--split", "all")
    warning = "evaluate.py: warning: 5 of the 10 scored classes were trained on, such as 0\n"
    assert warning in capsys.readouterr().err
    evaluate_here(version)
    assert "warning" not in capsys.readouterr().err


def test_evaluate_scores_validation_classes_of_a_model_that_had_some(version, capsys):
    with pytest.raises(SystemExit, match="2"):
        evaluate_here(version, "--split", "validation")
    error = capsys.readouterr().err
    assert "`split` can be validation for the images of a training with --validation_share" in error
    change_recipe(version, validation_share=0.4)
    evaluate_here(version)
    assert "of 2 classes (validation) of digits" in capsys.readouterr().out
    evaluate_here(version, "--split", "test")
    assert "of 5 classes (test) of digits" in capsys.readouterr().out
    evaluate_here(version, "--split", "train")
    output = capsys.readouterr()
    assert "of 3 classes (train) of digits" in output.out
    assert "warning" not in output.err
    with pytest.raises(SystemExit, match="2"):
        evaluate_here(version, "--split", "train", "--dataset", "glyphs")
    assert "`split` can be train for the images of the training" in capsys.readouterr().err


def test_evaluate_counts_the_neighbours_that_there_are(version, tmp_path, capsys):
    photos = write_images(tmp_path / "photos", {"a": 2, "b": 2, "c": 2})
    data = [str(version), "--dataset", "folder", "--data_dir", str(photos), "--nmi", "false"]
    evaluate.main(data)
    printed = capsys.readouterr().out
    assert "recall@2" in printed
    assert "recall@4" not in printed
    with pytest.raises(SystemExit, match="2"):
        evaluate.main([*data, "--k", "[1, 4]"])
    message = "`k` must not exceed the neighbours. Received: k=[1, 4], neighbours=3"
    assert message in capsys.readouterr().err


def test_evaluate_refuses_a_folder_for_the_scores(version, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        evaluate_here(version, "--out", tmp_path)
    assert f"`out` must be a file. {tmp_path} is a folder" in capsys.readouterr().err


def test_evaluate_names_the_scores_of_a_model_without_a_version_after_it(version, tmp_path):
    shutil.copytree(version, tmp_path / "flat")
    evaluate_here(tmp_path / "flat")
    assert pathlib.Path("runs", "flat", "evaluation.json").is_file()


def test_evaluate_names_an_image_lost_while_it_embeds(version, tmp_path, monkeypatch, capsys):
    photos = write_images(tmp_path / "photos", {"a": 2, "b": 2})
    lost = photos / "b" / "1.png"
    load_split = evaluate.load_split

    def load_and_lose(*arguments):
        split = load_split(*arguments)
        lost.unlink()
        return split

    monkeypatch.setattr(evaluate, "load_split", load_and_lose)
    with pytest.raises(SystemExit, match="2"):
        evaluate_here(version, "--dataset", "folder", "--data_dir", photos)
    assert f"evaluate.py: error: {lost} cannot be read (missing): mend" in capsys.readouterr().err


def test_evaluate_stops_at_ctrl_c(version, monkeypatch, capsys):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluate, "load_split", interrupted)
    with pytest.raises(SystemExit, match="130"):
        evaluate_here(version)
    assert capsys.readouterr().err.endswith("evaluate.py: stopped\n")


def test_evaluate_names_the_run_of_a_version_given_as_a_dot(version, monkeypatch):
    monkeypatch.chdir(version)
    evaluate_here(".")
    content = json.loads((version / "runs" / "small" / "evaluation.json").read_text())
    assert content["dataset"] == "digits"


@pytest.mark.parametrize("metadata", [None, '{"recipe": {"x": 1}}', "words", "[1]", "\xff"])
def test_evaluate_needs_a_dataset_where_the_metadata_are_foreign(metadata, version, capsys):
    path = version / "assets.extra" / "metadata.json"
    path.unlink() if metadata is None else path.write_bytes(metadata.encode("latin1"))
    with pytest.raises(SystemExit, match="2"):
        evaluate_here(version)
    assert "does not say what it was trained on: give --dataset" in capsys.readouterr().err


def test_evaluate_refuses_a_broken_saved_model(version, capsys):
    (version / "saved_model.pb").write_bytes(b"half a file")
    with pytest.raises(SystemExit, match="2"):
        evaluate_here(version)
    error = capsys.readouterr().err
    assert f"error: {version} cannot be read (" in error
    assert len(error.strip().splitlines()) == 1


def save_module(path, spec, output):
    module = tf.Module()
    embed = tf.function(lambda pixels: {output: tf.reduce_mean(pixels, axis=[1, 2])})
    tf.saved_model.save(module, path, {"embed_images": embed.get_concrete_function(spec)})


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "output"),
    [
        ("pixels", [None, 8, 8, 1], "float32", "embedding"),
        ("images", [None, None, 8, 1], "float32", "embedding"),
        ("images", [None, 8, 8], "float32", "embedding"),
        ("images", [None, 8, 8, 4], "float32", "embedding"),
        ("images", [None, 8, 8, 1], "uint8", "embedding"),
        ("images", [None, 8, 8, 1], "float32", "features"),
    ],
)
def test_evaluate_refuses_another_signature(
    name, shape, dtype, output, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    save_module("foreign", tf.TensorSpec(shape, tf.as_dtype(dtype), name=name), output)
    with pytest.raises(SystemExit, match="2"):
        evaluate_here("foreign", "--dataset", "digits")
    error = capsys.readouterr().err
    assert "must take float32 `images` of a fixed size, grey or of three colours, and" in error


def test_evaluate_looks_whether_it_can_write_before_it_reads(version, capsys):
    pathlib.Path("runs").write_text("a file where the folder should be")
    with pytest.raises(SystemExit, match="2"):
        evaluate_here(version, "--dataset", "folder", "--data_dir", "missing")
    assert "cannot write to" in capsys.readouterr().err


@pytest.fixture(scope="module")
def trained_with_pddm(tmp_path_factory):
    """A folder in which a run that learns a similarity has finished."""
    folder = tmp_path_factory.mktemp("pddm")
    options = ["--embedding_dim", "8", "--steps", "2", "--checkpoint_every", "2"]
    options += ["--loss", "pddm", "--loss_options.num_quadruplets", "per_class"]
    result = run("train.py", "--run", "small", *SMALL, *options, cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture
def learned(trained_with_pddm, tmp_path, monkeypatch):
    """The version that this run exported; the working folder is an empty one."""
    monkeypatch.chdir(tmp_path)
    return trained_with_pddm / "saved_models" / "small" / "1"


@pytest.fixture(scope="module")
def expected(trained_with_pddm):
    """Recall@1 of the trained model by the learned similarity and by distance, and its layer."""
    model = keras.models.load_model(trained_with_pddm / "runs" / "small" / "checkpoint.keras")
    test = pipelines.load("digits").test
    x = model.embed(pipelines.evaluation_batches(test))
    recalls = [
        recall_at_k(x, test.labels, k=1, similarity=similarity)[1]
        for similarity in (model.loss.similarity_layer.matrix, None)
    ]
    assert min(recalls) > 0.3
    assert abs(recalls[0] - recalls[1]) > 0.01
    return recalls


def evaluation_of(name):
    return json.loads(pathlib.Path("runs", "small", f"{name}.json").read_text())


def test_evaluate_ranks_by_the_learned_similarity(learned, expected, capsys):
    evaluate_here(learned, "--rank_by", "similarity")
    assert "of digits,\nranked by the learned similarity:" in capsys.readouterr().out
    content = evaluation_of("evaluation_similarity")
    assert content["rank_by"] == "similarity"
    assert "distances" not in content
    assert content["scores"]["recall@1"] == pytest.approx(expected[0], abs=2e-3)
    evaluate_here(learned)
    content = evaluation_of("evaluation")
    assert content["rank_by"] == "distance"
    assert content["scores"]["recall@1"] == pytest.approx(expected[1], abs=2e-3)


def test_evaluate_reranks_and_tells_what_is_lost(learned, expected, capsys):
    evaluate_here(learned, "--rerank", "3")
    content = evaluation_of("evaluation_rerank_3")
    assert (content["rank_by"], content["rerank"]) == ("similarity", 3)
    compared = content["reranking"]
    assert set(compared) == {"queries", "exact", "reranked", "lost"}
    assert compared["queries"] == 896
    assert compared["exact"] == {"recall@1": pytest.approx(expected[0], abs=2e-3)}
    assert compared["reranked"] == content["scores"]
    lost = compared["exact"]["recall@1"] - compared["reranked"]["recall@1"]
    assert compared["lost"] == {"recall@1": lost}
    assert lost != 0
    printed = capsys.readouterr().out
    assert "the 3 nearest of each ranked by the learned similarity:" in printed
    assert "Against a ranking of all images, on 896 queries:" in printed
    assert f"lost     {lost:10.4f}" in printed


def test_reranking_all_images_is_exact(learned, expected, monkeypatch):
    monkeypatch.setattr(evaluate, "COMPARED_QUERIES", 50)
    evaluate_here(learned, "--rerank", "895")
    content = evaluation_of("evaluation_rerank_895")
    assert content["scores"] == {"recall@1": pytest.approx(expected[0], abs=2e-3)}
    assert content["reranking"]["queries"] == 50
    assert content["reranking"]["lost"] == {"recall@1": 0.0}


def test_evaluate_draws_pairs_and_retrievals(learned, capsys):
    evaluate_here(learned, "--report", "by_distance")
    folder = pathlib.Path("by_distance")
    assert f"Report: {folder / 'index.html'}" in capsys.readouterr().out
    pictures = [folder / f"{name}.png" for name in ("score_distributions", "retrievals")]
    # Similarity beside distance; the queries and the 8 that they find.
    assert [Image.open(path).size for path in pictures] == [(1000, 400), (1170, 640)]
    assert (folder / "projector" / "projector_config.pbtxt").is_file()
    evaluate_here(learned, "--report", "by_similarity", "--rank_by", "similarity")
    ranked = pathlib.Path("by_similarity")
    assert (ranked / "retrievals.png").read_bytes() != pictures[1].read_bytes()
    page = (ranked / "index.html").read_text()
    assert "the 100 nearest by distance, by the learned similarity" in page
    assert "the 100 nearest by distance" not in (folder / "index.html").read_text()


@pytest.mark.filterwarnings("ignore:1 of 6 queries")
def test_evaluate_draws_distances_of_a_model_without_a_similarity(version, tmp_path):
    photos = write_images(tmp_path / "photos", {"a": 1, "b": 2, "c": 2})
    Image.new("RGB", (30, 12)).save(photos / "b" / "wide.jpg")
    data = ["--dataset", "folder", "--data_dir", photos, "--split", "all"]
    evaluate_here(version, *data, "--report", "report")
    names = ("score_distributions.png", "retrievals.png")
    sizes = [Image.open(pathlib.Path("report", name)).size for name in names]
    assert sizes == [(500, 400), (780, 640)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rank_by", "cosine"], "`rank_by` must be one of 'distance', 'similarity'. Received"),
        (
            ["--rank_by", "distance", "--rerank", "9"],
            "`rerank` orders images by the learned similarity: leave out `rank_by`. Received: "
            "rank_by='distance', rerank=9",
        ),
        (["--rerank", "0"], "`rerank` must be >= `k`. Received: rerank=0, k=1"),
        (["--rerank", "896"], "`rerank` must not exceed the images that a query can find. Rece"),
    ],
)
def test_evaluate_refuses_rankings_that_cannot_be(arguments, message, learned, capsys):
    with pytest.raises(SystemExit, match="2"):
        evaluate_here(learned, *arguments)
    assert message in capsys.readouterr().err
    assert not pathlib.Path("runs").exists()


@pytest.mark.parametrize("arguments", [["--rank_by", "similarity"], ["--rerank", "9"]])
def test_evaluate_says_what_a_learned_similarity_needs(arguments, version, capsys):
    with pytest.raises(SystemExit, match="2"):
        evaluate_here(version, *arguments)
    error = capsys.readouterr().err
    assert "has no learned similarity to rank by: train with --loss pddm, or rank by dist" in error


@pytest.mark.parametrize("settings", [Recipe, evaluate.Evaluation])
def test_every_setting_is_documented(settings):
    import dataclasses
    import inspect

    names = [field.name for field in dataclasses.fields(settings)]
    assert re.findall(r"^    (\w+):", inspect.getdoc(settings), re.MULTILINE) == names


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({}, [1e-3, 5e-4, 0]),
        ({"schedule": "constant"}, [1e-3, 1e-3, 1e-3]),
        ({"warmup_steps": 500}, [0, 1e-3, 0]),
        ({"warmup_steps": 500, "schedule": "constant"}, [0, 1e-3, 1e-3]),
    ],
)
def test_the_learning_rate_rises_and_falls(settings, rates):
    schedule = train.learning_rate(Recipe(steps=1000, checkpoint_every=100, **settings))
    found = [float(schedule(step)) for step in (0, 500, 1000)]
    np.testing.assert_allclose(found, rates, atol=1e-8)


def test_the_learning_rate_falls_in_steps():
    settings = {"steps": 1000, "checkpoint_every": 100, "schedule": "step", "decay_every": 400}
    schedule = train.learning_rate(Recipe(**settings))
    found = [float(schedule(step)) for step in (0, 399, 400, 799, 800)]
    np.testing.assert_allclose(found, [1e-3, 1e-3, 1e-4, 1e-4, 1e-5], rtol=1e-5)
    schedule = train.learning_rate(Recipe(**settings, decay_factor=0.96))
    assert float(schedule(999)) == pytest.approx(1e-3 * 0.96**2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "step"}, "the schedule `step` needs `decay_every`, > 0"),
        ({"schedule": "step", "decay_every": 0}, "needs `decay_every`, > 0. .*decay_every=0"),
        ({"decay_every": 5}, "`decay_every` is of the schedule `step`. .*schedule='cosine'"),
        ({"schedule": "constant", "decay_factor": 0.5}, "`decay_factor` is of the schedule `step`"),
        ({"schedule": "step", "decay_every": 5, "decay_factor": 1.0}, "`decay_factor` must be > 0"),
        ({"schedule": "step", "decay_every": 5, "warmup_steps": 9}, "`warmup_steps` are for the"),
        ({"steps": -1}, "`steps` must be >= 0. Received: steps=-1"),
        ({"exit_multiplier": 0.0}, "`exit_multiplier` must be > 0"),
        ({"embedding_dim": 0}, "`embedding_dim` must be > 0"),
    ],
)
def test_schedules_and_multipliers_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**settings)


def test_exits_and_biases_have_multipliers_of_their_own():
    recipe = Recipe(
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


def test_no_steps_score_and_export_the_features_as_they_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ["--dataset", "digits", "--loss", "triplet", "--classes_per_batch", "5"]
    arguments += ["--steps", "0", "--embedding_dim", "null"]
    train.main([*arguments, "--run", "features"])
    scores = json.loads((tmp_path / "runs" / "features" / "scores.json").read_text())
    assert "trained" not in scores
    assert scores["train_seconds"] == 0
    assert f"{scores['untrained']['recall@1']:.4f}" in capsys.readouterr().out
    model = tf.saved_model.load(str(tmp_path / "saved_models" / "features" / "1"))
    digits = pipelines.load("digits").test
    embed = model.signatures["embed_images"]
    features = embed(images=tf.constant(digits.images, tf.float32))["embedding"].numpy()
    backbone = tfdml.models.build_embedder(
        "small_cnn", None, input_shape=digits.images.shape[1:], normalize=False
    )
    assert features.shape[1] == backbone.output_shape[1]
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    found = recall_at_k(features, digits.labels)[1]
    assert scores["untrained"]["recall@1"] == pytest.approx(found, abs=2e-3)
    evaluate.main(["saved_models/features", "--nmi", "false"])
    scored = json.loads((tmp_path / "runs" / "features" / "evaluation.json").read_text())
    assert scored["scores"]["recall@1"] == pytest.approx(found, abs=2e-3)
    with pytest.raises(SystemExit):
        train.main([*arguments, "--levels", "3"])
    error = capsys.readouterr().err
    assert "`embedding_dim` must be a number where there are several levels" in error
    assert "Traceback" not in error
    with pytest.raises(SystemExit):
        train.main(["--dataset", "digits", "--exit_multiplier", "2"])
    assert "`exit_multiplier` is of early exits" in capsys.readouterr().err


def test_the_similarity_learns_at_the_rate_of_the_head():
    recipe = Recipe(
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


def test_density_alone_measures_the_classes_and_learns_a_target_for_each(tmp_path):
    options = ["--loss_options.alpha_multiplier", "30", "--head_multiplier", "7"]
    result = run("train.py", "--loss", "density", *options, "--run", "d", *SMALL, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Measuring the density of the training classes" in result.stdout
    model = train.load_checkpoint(shutil.copytree(tmp_path / "runs" / "d", tmp_path / "copy"))
    densities = model.loss.regularizer.initial_density
    assert len(densities) == 5
    assert 0.01 < min(densities) < max(densities) < 0.95
    rates = dict(
        zip(
            [v.path for v in model.trainable_variables], model.optimizer._multiplier_of, strict=True
        )
    )
    assert rates["density_targets/targets"] == 30
    assert rates["embedding/kernel"] == 7
    targets = np.asarray(model.loss.layer.targets)
    assert (targets != 0.5).all()
    log = (tmp_path / "runs" / "d" / "logs" / "epochs.csv").read_text().splitlines()
    last = dict(zip(log[0].split(","), log[-1].split(","), strict=True))
    assert float(last["target_mean"]) == pytest.approx(targets.mean())
    assert float(last["target_highest"]) == pytest.approx(targets.max())


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        ("density", {"base": "density"}, "density needs the classes: `initial_density`, of tfdml."),
        ("density", {"num_classes": 4, "correlation": False}, "Received: num_classes=4, classes=5"),
        ("density", {"initial_density": [0.1]}, "Received: num_classes=1, classes=5"),
        ("regularized", {"base": "npair", "regularizer": "density"}, "`train.py --loss density`"),
    ],
)
def test_density_of_other_classes_is_refused_before_the_run_begins(loss, options, message):
    recipe = Recipe(loss=loss, loss_options=options, dataset="digits", embedding_dim=4)
    dataset = pipelines.load("digits")
    with pytest.raises(ValueError, match=re.escape(message)):
        train.build_model(recipe, dataset.train, dataset)


@pytest.mark.parametrize(
    ("options", "measured"),
    [
        ({"correlation": False}, False),
        ({"num_classes": 5}, True),
        ({"initial_density": [0.1, 0.2, 0.3, 0.4, 0.5]}, False),
        ({"base": "npair", "eta": 1.0}, True),
    ],
)
def test_density_is_measured_where_it_is_needed(options, measured, capsys):
    recipe = Recipe(loss="density", loss_options=options, dataset="digits", embedding_dim=4)
    dataset = pipelines.load("digits")
    loss = train.build_model(recipe, dataset.train, dataset).loss
    assert ("Measuring" in capsys.readouterr().out) == measured
    assert loss.num_classes == 5
    if "initial_density" in options:
        assert loss.regularizer.initial_density == options["initial_density"]
