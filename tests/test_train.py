"""train.py in this process: what a run writes, how it resumes, and what it rejects."""

import dataclasses
import inspect
import json
import pathlib
import re
import shutil
import signal

import keras
import numpy as np
import programs
import pytest
import tensorflow as tf
import yaml
from small_runs import SMALL, TWO_STEPS, write_images

import pipelines
import tfdml
from tfdml.evaluation import recall_at_k
from tfdml.models.precision import in_float32
from tfdml.programs import evaluate, train
from tfdml.runs.checkpoints import read_model
from tfdml.runs.devices import Devices
from tfdml.runs.images import Images
from tfdml.runs.learning_rate import learning_rate
from tfdml.runs.recipe import Recipe
from tfdml.runs.requirements import SAMPLER_OPTIONS

pytestmark = pytest.mark.xdist_group("train")
ROOT = pathlib.Path(__file__).parents[1]


def run(*arguments, cwd):
    """What train.py prints in a run that ends well."""
    result = programs.run(train.main, *arguments, cwd=cwd)
    assert result.code == 0, result.err
    return result.out


def rejection(*arguments, cwd):
    """The one sentence in which train.py rejects these arguments."""
    return programs.run(train.main, *arguments, cwd=cwd).sentence


def completed(**settings):
    """A recipe with the defaults that follow from five classes, but for the learning rate."""
    return Recipe(**{"learning_rate": 1e-3, **settings}).completed(num_classes=5)[0]


def scores_of(folder):
    return json.loads((folder / "scores.json").read_text())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder in which a small run has finished, and what it printed."""
    folder = tmp_path_factory.mktemp("finished")
    steps = ["--steps", "60", "--checkpoint_every", "20", "--seed", "2"]
    return folder, run("--loss", "triplet", "--run", "small", *SMALL, *steps, cwd=folder)


def test_a_run_improves_the_retrieval_of_unseen_classes(finished):
    folder, printed = finished
    scores = scores_of(folder / "runs" / "small")
    gain = scores["trained"]["recall@1"] - scores["untrained"]["recall@1"]
    assert gain > 0.03  # -0.05 by the statistics of batch normalization alone
    assert scores["untrained"]["recall@1"] > 0.3
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
    assert scores_of(folder / "runs" / "small")["trained"]["recall@1"] == pytest.approx(
        recall_at_k(embeddings, digits.test.labels)[1], abs=2e-3
    )


def test_a_run_killed_before_its_first_checkpoint_resumes(tmp_path):
    folder = tmp_path / "runs" / "x"
    recipe, *_ = train.parse(["--run", "x", *SMALL, *TWO_STEPS])
    (folder / "logs").mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(dataclasses.asdict(recipe)))
    run("--run", "x", "--resume", cwd=tmp_path)
    assert scores_of(folder)["train_seconds_from_step"] == 0
    assert (tmp_path / "saved_models" / "x" / "1" / "saved_model.pb").is_file()


def test_a_run_killed_in_its_export_resumes(finished, tmp_path):
    shutil.copytree(finished[0] / "runs", tmp_path / "runs")
    (tmp_path / "saved_models" / "small" / ".unfinished-1-x").mkdir(parents=True)
    scores = (tmp_path / "runs" / "small" / "scores.json").read_text()
    run("--run", "small", "--resume", cwd=tmp_path)
    assert [path.name for path in (tmp_path / "saved_models" / "small").iterdir()] == ["1"]
    assert (tmp_path / "runs" / "small" / "scores.json").read_text() == scores


def test_resume_rejects_other_settings(finished):
    message = rejection("--run", "small", "--resume", "--seed", "1", cwd=finished[0])
    assert "--seed differs from the run's: 1, was 2" in message


def test_a_run_without_new_layers_resumes_with_its_head_steps(tmp_path):
    given = ["--run", "x", "--head_steps", "1"]
    run(*given, *SMALL, *TWO_STEPS, "--embedding_dim", "null", "--loss", "triplet", cwd=tmp_path)
    for steps in ("3", "4"):
        run(*given, "--resume", "--steps", steps, cwd=tmp_path)


def test_resume_rejects_a_broken_checkpoint(tmp_path):
    folder = tmp_path / "runs" / "x"
    (folder / "logs").mkdir(parents=True)
    (folder / "config.yaml").write_text("dataset: digits\nclasses_per_batch: 5\nrun: x\n")
    (folder / "checkpoint.keras").write_bytes(b"half a file")
    message = rejection("--run", "x", "--resume", cwd=tmp_path)
    assert "checkpoint.keras cannot be read" in message
    assert "start over" in message


def test_resume_needs_a_run(tmp_path):
    assert "--resume needs --run NAME" in rejection("--resume", cwd=tmp_path)


def test_resume_rejects_other_classes_than_those_of_the_run(tmp_path, monkeypatch):
    photos = write_images(tmp_path / "photos", dict.fromkeys("bcde", 2))
    data = ["--dataset", "folder", "--data_dir", photos, "--image_size", "16", "--run", "x"]

    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "build_model", lambda *_: None)
    monkeypatch.setattr(train, "fit", stopped)
    options = [*data, "--classes_per_batch", "2", *TWO_STEPS]
    assert programs.run(train.main, *options, cwd=tmp_path).code == 130
    write_images(photos, {"a": 2})
    message = rejection("--run", "x", "--resume", cwd=tmp_path)
    assert "the classes to train are not those that runs/x began with" in message


def test_a_run_that_diverges_is_rejected_and_saves_no_weights(tmp_path):
    options = [*SMALL, "--learning_rate", "1e38", "--run", "x"]
    options += ["--steps", "1", "--checkpoint_every", "1", "--optimizer", "sgd"]
    message = rejection(*options, cwd=tmp_path)
    assert "not finite at step 1; the loss diverged: lower the learning rate" in message
    assert not list(tmp_path.rglob("*.keras"))
    assert not (tmp_path / "saved_models" / "x").exists()


def test_a_frozen_similarity_is_not_trained():
    options = {"similarity": {"trainable": False}}
    recipe = completed(loss="pddm", loss_options=options, dataset="digits", embedding_dim=4)
    dataset = pipelines.load("digits")
    model = train.build_model(recipe, dataset.train, dataset)
    model.optimizer.build(model.trainable_variables)
    assert model.loss.layer.weights
    trained = {variable.path for variable in model.trainable_variables}
    assert trained.isdisjoint(variable.path for variable in model.loss.layer.weights)


@pytest.fixture(scope="module")
def of_photos(tmp_path_factory):
    """A folder with images, and a run on them under a name of its own."""
    folder = tmp_path_factory.mktemp("of_photos")
    photos = write_images(folder / "photos", dict.fromkeys("abcd", 2))
    data = ["--dataset", "folder", "--data_dir", photos, "--image_size", "16"]
    arguments = ["--loss", "npair", "--classes_per_batch", "2", *data, *TWO_STEPS]
    run(*arguments, cwd=folder)
    return folder, [str(argument) for argument in arguments]


def test_trains_on_a_folder_of_images_and_serves_their_bytes(of_photos):
    folder, _ = of_photos
    version = folder / "saved_models" / "folder_npair" / "1"
    serve = tf.saved_model.load(str(version)).signatures["serving_default"]
    contents = [(folder / "photos" / "d" / f"{number}.png").read_bytes() for number in range(2)]
    served = serve(image_bytes=tf.constant(contents))["embedding"].numpy()
    model = keras.models.load_model(folder / "runs" / "folder_npair" / "checkpoint.keras")
    last = pipelines.load("folder", data_dir=folder / "photos").test.subset(slice(-2, None))
    expected = model.embed(pipelines.evaluation_batches(last, (16, 16, 3)))
    np.testing.assert_allclose(served, expected, atol=1e-5)


def test_a_second_run_of_a_name_gets_a_number(of_photos, monkeypatch):
    folder, arguments = of_photos
    monkeypatch.chdir(folder)
    assert train.parse(arguments)[0].run == "folder_npair_2"


def test_a_test_split_of_a_few_images_is_scored_by_the_neighbours_it_has(of_photos):
    scores = scores_of(of_photos[0] / "runs" / "folder_npair")
    assert list(scores["trained"]) == list(scores["untrained"]) == ["recall@1", "recall@2"]


def test_trains_and_scores_on_what_is_in_the_boxes(tmp_path):
    photos = write_images(tmp_path / "photos", {"a": 2, "b": 2, "c": 2, "d": 2})
    paths = sorted(path.relative_to(photos) for path in photos.rglob("*.png"))
    lines = "".join(f"{path},{number},1,16,15\n" for number, path in enumerate(paths))
    (tmp_path / "boxes.csv").write_text(f"path,x1,y1,x2,y2\n{lines}")
    data = ["--dataset", "folder", "--data_dir", str(photos), "--classes_per_batch", "2"]
    boxes = ["--boxes", str(tmp_path / "boxes.csv"), "--run", "unused"]
    recipe, *_ = train.parse([*data, *boxes])
    train_split, test_split, *_ = train.load_images(recipe)
    left = [split.boxes[:, 0].tolist() for split in (train_split, test_split)]
    assert left == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.data
def test_batches_are_groups_of_related_classes(data_folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    data = ["--dataset", "omniglot", "--data_dir", str(data_folder / "tfds")]
    options = ["--sampler", "groups", "--sampler_options.evenly", "true"]
    recipe, *_ = train.parse([*data, *options, "--sampler_options.super_classes", "4"])
    assert recipe.sampler_options == {"evenly": True, "super_classes": 4}
    train_split, *_, dataset = train.load_images(recipe)
    recipe = train.with_defaults(recipe, train_split)
    batches, _ = train.training_batches(recipe, 0, train_split, dataset)
    labels = next(iter(batches))[1].numpy()
    super_label_of = dict(zip(train_split.labels, train_split.super_labels, strict=True))
    assert len({super_label_of[label] for label in labels}) == 4


def test_trains_and_scores_queries_in_the_gallery_of_a_dataset(tmp_path, monkeypatch):
    digits = pipelines.load("digits")
    queries = np.arange(len(digits.test.labels)) % 4 == 0
    parts = {"test": digits.test.subset(queries), "gallery": digits.test.subset(~queries)}
    dataset = dataclasses.replace(digits, **parts)
    monkeypatch.setattr(pipelines, "load", lambda *_, **__: dataset)
    monkeypatch.chdir(tmp_path)
    train.main([*SMALL, *TWO_STEPS, "--run", "apart"])
    reported = scores_of(tmp_path / "runs" / "apart")["trained"]
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


@pytest.fixture(scope="module")
def small_model():
    """A model of the small dataset, which several samplers train on."""
    dataset = small_dataset()
    return train.build_model(completed(steps=8, checkpoint_every=4), dataset.train, dataset)


@pytest.mark.parametrize(
    ("sampler", "options", "most_sizes"),
    [
        ("groups", {}, 5),
        ("whole_classes", {}, 2),
        ("pairs", {"reshuffle": True}, 1),
        ("pairs", {"hard_neighbours": True}, 1),
        ("shuffled", {}, 1),
    ],
)
def test_a_model_trains_with_the_batches_of_every_sampler(
    sampler, options, most_sizes, small_model
):
    dataset = small_dataset()
    recipe = completed(
        sampler=sampler,
        sampler_options=options,
        classes_per_batch=4,
        images_per_class=3,
        steps=8,
        checkpoint_every=4,
    )
    small_model.optimizer.iterations.assign(0)
    batches, callbacks = train.training_batches(recipe, 0, dataset.train, dataset)
    fitted = {"epochs": 2, "callbacks": callbacks, "shuffle": False, "verbose": 0}
    history = small_model.fit(batches, steps_per_epoch=4, **fitted)
    assert np.isfinite(history.history["loss"]).all()
    assert int(small_model.optimizer.iterations) == 8
    if not callbacks:
        sizes = {len(labels) for _, labels in batches.take(20)}
        assert max(sizes) == 12
        assert min(2, most_sizes) <= len(sizes) <= most_sizes


def test_hard_neighbours_are_those_of_the_checkpoint_when_a_run_resumes(tmp_path):
    dataset = small_dataset()
    recipe = completed(
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
        images = Images(dataset.train, *dataset.scored(), dataset)
        train.fit(recipe, folder, model, images, batches.map(noted), callbacks, Devices())
        return np.stack(seen)

    whole = batches_of_fit(train.build_model(recipe, dataset.train, dataset), tmp_path / "whole")
    assert len(whole) == 9
    stopped = keras.models.load_model(tmp_path / "whole" / "1.keras")
    resumed = batches_of_fit(stopped, tmp_path / "resumed")
    np.testing.assert_array_equal(resumed, whole[6:])


@pytest.mark.parametrize("sampler", SAMPLER_OPTIONS)
def test_options_of_samplers_are_those_of_their_batches(sampler):
    batches = {"groups": pipelines.group_batches, "pairs": pipelines.pair_batches}[sampler]
    parameters = inspect.signature(batches).parameters.values()
    options = [option.name for option in parameters if option.kind == option.KEYWORD_ONLY]
    of_loading = ["preprocessing"] if sampler == "groups" else ["preprocessing", "part"]
    assert [*SAMPLER_OPTIONS[sampler], *of_loading] == options


@pytest.fixture(scope="module")
def held_out(tmp_path_factory):
    """A run with validation classes and hard neighbours: folder, output, steps of their refresh."""
    folder, steps = tmp_path_factory.mktemp("held_out"), []
    refresh = pipelines.HardNeighbours.refresh

    def noted(self, step, embeddings):
        steps.append(step)
        refresh(self, step, embeddings)

    options = ["--validation_share", "0.4", "--dataset", "digits", "--classes_per_batch", "3"]
    options += ["--sampler", "pairs", "--sampler_options.hard_neighbours", "true"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipelines.HardNeighbours, "refresh", noted)
        patch.setattr(train, "export", lambda *_: None)
        printed = run(*options, "--steps", "4", "--checkpoint_every", "2", "--run", "x", cwd=folder)
    return folder / "runs" / "x", printed, steps


def test_a_run_refreshes_hard_neighbours_at_every_checkpoint(held_out):
    assert held_out[2] == [0, 2]


def test_validation_classes_are_training_classes(held_out):
    folder, printed, _ = held_out
    assert "of 3 classes to train" in printed
    assert "Unseen validation classes" in printed
    assert scores_of(folder)["scored_classes"] == "validation"
    log = (folder / "logs" / "epochs.csv").read_text()
    assert "val_recall@1" in log.splitlines()[0]


def test_an_image_lost_in_training_is_named(tmp_path, monkeypatch):
    photos = write_images(tmp_path / "photos", dict.fromkeys("abcd", 3))
    lost = photos / "a" / "1.png"

    class Losing(tfdml.callbacks.Checkpoint):
        def on_epoch_end(self, epoch, logs=None):
            super().on_epoch_end(epoch, logs)
            lost.unlink(missing_ok=True)

    monkeypatch.setattr(tfdml.callbacks, "Checkpoint", Losing)
    data = ["--dataset", "folder", "--data_dir", photos, "--image_size", "16", "--run", "x"]
    options = ["--classes_per_batch", "2", "--steps", "10000", "--checkpoint_every", "5"]
    message = rejection(*data, *options, cwd=tmp_path)
    assert f"error: {lost} cannot be read (missing)" in message
    assert message.endswith("Go on with: tfdml-train --run x --resume")
    assert (tmp_path / "runs" / "x" / "checkpoint.keras").is_file()


@pytest.fixture
def interrupts():
    """Ctrl-C raises KeyboardInterrupt, as in a process of its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def interrupted(*arguments):
    signal.raise_signal(signal.SIGINT)


def interrupted_in_another_error(*arguments):
    try:
        interrupted()
    except KeyboardInterrupt as error:
        raise RuntimeError("what TensorFlow makes of it") from error


@pytest.mark.parametrize("fit", [interrupted, interrupted_in_another_error])
@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_says_how_to_go_on_in_whatever_it_ends(fit, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "build_model", lambda *_: None)
    monkeypatch.setattr(train, "fit", fit)
    result = programs.run(train.main, *SMALL, "--run", "x", cwd=tmp_path)
    assert result.code == 130
    assert result.err.endswith("\nStopped. Go on with: tfdml-train --run x --resume\n")
    assert (tmp_path / "runs" / "x" / "config.yaml").is_file()


@pytest.mark.usefixtures("interrupts")
def test_another_error_in_training_is_no_ctrl_c(tmp_path, monkeypatch):
    def broken(*arguments):
        raise RuntimeError("a defect")

    monkeypatch.setattr(train, "build_model", lambda *_: None)
    monkeypatch.setattr(train, "fit", broken)
    with pytest.raises(RuntimeError, match="a defect"):
        programs.run(train.main, *SMALL, "--run", "x", cwd=tmp_path)


NO_DATA = ["--dataset", "folder", "--data_dir", "missing"]
READ_WHOLE = [*NO_DATA, "--skip_invalid", "true"]  # every image once, which may take minutes
REJECTED = [
    (["--loss", "liftd"], ["loss 'liftd'", "'lifted'"]),
    (["--dataset", "glyps"], ["dataset 'glyps'", "'glyphs'"]),
    (["--backbone", "smal_cnn"], ["backbone 'smal_cnn'", "'small_cnn'"]),
    (["--lss", "lifted"], ["--lss", "--loss?"]),
    (["--loss_options", "null"], ["`loss_options`", "Received: loss_options=None"]),
    (["--steps", "1e3"], ["`steps`", "integer", "Received: steps=1000.0"]),
    (["--config", ROOT / "tests" / "misspelt.yaml"], ["misspelt.yaml: ", "'stpes'", "--steps?"]),
    (
        ["--loss_options.similarity.dropout", "0"],
        ["--loss_options.similarity.dropout", """--loss_options.similarity '{"dropout": ...}'"""],
    ),
    (["--loss_options.magrin", "1", *NO_DATA], ["loss 'lifted'", "'magrin'", "'margin'"]),
    (["--loss", "memory", *NO_DATA], ["loss 'memory' requires the option 'base'"]),
    (["--loss_options.margin", "-1", *READ_WHOLE], ["`margin`", "> 0", "Received: margin=-1"]),
    (["--augmentation.flp", "true", *NO_DATA], ["'flp'", "'flip'"]),
    (
        ["--sampler", "groups", "--sampler_options.evnly", "true", *NO_DATA],
        ["sampler 'groups'", "'evnly'", "'evenly'"],
    ),
    (
        ["--sampler", "pairs", "--sampler_options.hard_neighbors", "true", *NO_DATA],
        ["sampler 'pairs'", "'hard_neighbors'", "'hard_neighbours'"],
    ),
    (
        ["--sampler", "pairs", "--sampler_options.hard_neighbours", "3", *NO_DATA],
        ["`hard_neighbours`", "Received: hard_neighbours=3"],
    ),
    (
        ["--sampler", "whole_classes", "--dataset", "digits"],
        ["`batch_size`", "the largest class", "Received: batch_size=20"],
    ),
    (
        ["--sampler", "groups", "--dataset", "digits", "--classes_per_batch", "4"],
        ["`super_labels`"],
    ),
    (
        ["--dataset", "digits", "--classes_per_batch", "6"],
        ["`classes_per_batch`", "Received: classes_per_batch=6, classes=5"],
    ),
    (
        ["--embedding_dim", "null", "--levels", "3", *READ_WHOLE],
        ["`embedding_dim`", "Received: embedding_dim=None, levels=3"],
    ),
    (
        ["--exit_multiplier", "2", *READ_WHOLE],
        ["`exit_multiplier`", "Received: exit_multiplier=2.0"],
    ),
    (
        ["--pooling", "average+max", *READ_WHOLE],
        ["`pooling`", "small_cnn", "Received: pooling='average+max'"],
    ),
    (
        ["--sampler", "shuffled", "--dataset", "digits", "--classes_per_batch", "500"],
        ["`batch_size`", "the number of images", "Received: batch_size=2000"],
    ),
    (NO_DATA, ["there is no missing"]),
    (
        ["--weights", "missing.h5", "--dataset", "folder", "--data_dir", "."],
        ["`weights`", "Received: weights='missing.h5'"],
    ),
    (["--config", "missing.yaml"], ["missing.yaml"]),
]


@pytest.mark.parametrize(
    ("arguments", "words"), REJECTED, ids=["".join(map(str, row[0][:4])) for row in REJECTED]
)
def test_bad_input_is_rejected_with_a_sentence(arguments, words, tmp_path):
    message = rejection(*arguments, cwd=tmp_path)
    assert message.startswith("tfdml-train: error: ")
    assert [word for word in words if word not in message] == [], message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"images_per_class": 1}, "`images_per_class` .*Received: images_per_class=1"),
        ({"classes_per_batch": 1}, "`classes_per_batch` .*Received: classes_per_batch=1"),
        (
            {"sampler": "shuffled", "images_per_class": 0},
            "`images_per_class` .*Received: images_per_class=0",
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
        ({"run": "a/b"}, "`run` .*Received: run='a/b'"),
        ({"run": "a" * 101}, "`run` .*Received: run='aaa"),
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


def test_a_sampler_rejects_the_images_before_density_measures_them(tmp_path):
    options = ["--loss", "density", "--dataset", "digits", "--sampler", "whole_classes"]
    result = programs.run(train.main, *options, cwd=tmp_path)
    assert "`batch_size`" in result.sentence
    assert "Measuring" not in result.out


def test_a_run_that_exists_is_rejected(finished):
    message = rejection("--run", "small", *SMALL, cwd=finished[0])
    assert "run 'small' exists" in message
    assert "--resume" in message


def test_a_folder_that_cannot_be_written_is_rejected(tmp_path):
    (tmp_path / "runs").write_text("a file where the folder should be")
    message = rejection("--run", "x", *NO_DATA, cwd=tmp_path)
    assert f"cannot write to {tmp_path / 'runs'}" in message
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_classes_to_score_without_pairs_are_rejected(tmp_path):
    photos = write_images(tmp_path / "photos", {"a": 2, "b": 2, "c": 1, "d": 1})
    data = ["--dataset", "folder", "--data_dir", photos, "--classes_per_batch", "2"]
    message = rejection(*data, cwd=tmp_path)
    assert "one class to score must have 2 images or more" in message
    assert "Received: images=2, classes=2" in message
    assert not (tmp_path / "runs").exists()


def test_an_image_that_cannot_be_read_is_named(tmp_path):
    photos = write_images(tmp_path / "photos", dict.fromkeys("abcd", 2))
    (photos / "c" / "empty.png").write_bytes(b"")
    data = ["--dataset", "folder", "--data_dir", photos, "--image_size", "16"]
    message = rejection(*data, *TWO_STEPS, cwd=tmp_path)
    assert "empty.png cannot be read (0 bytes" in message
    assert "--skip_invalid true" in message


@pytest.mark.parametrize("content", ["steps: [1\nloss", "", "- 1\n- 2", "steps:\n  many"])
def test_a_broken_config_gets_one_line_with_its_name(content, tmp_path):
    (tmp_path / "x.yaml").write_text(content)
    result = programs.run(train.main, "--config", "x.yaml", cwd=tmp_path)
    assert result.err.startswith("tfdml-train: error: x.yaml: ")
    assert len(result.sentence) == len(result.err.strip()) > len("tfdml-train: error: x.yaml: ")


def test_a_set_of_tfds_names_its_run():
    recipe, *_ = train.parse(["--dataset", "tfds:mnist:3.0.1"])
    assert (recipe.dataset, recipe.run) == ("tfds:mnist:3.0.1", "tfds_mnist_3.0.1_lifted")


def test_every_setting_is_documented():
    names = [field.name for field in dataclasses.fields(Recipe)]
    assert re.findall(r"^    (\w+):", inspect.getdoc(Recipe), re.MULTILINE) == names


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
    schedule = learning_rate(completed(steps=1000, checkpoint_every=100, **settings))
    found = [float(schedule(step)) for step in (0, 500, 1000)]
    np.testing.assert_allclose(found, rates, atol=1e-8)


def test_the_learning_rate_falls_in_steps():
    settings = {"steps": 1000, "checkpoint_every": 100, "schedule": "step", "decay_every": 400}
    schedule = learning_rate(completed(**settings))
    found = [float(schedule(step)) for step in (0, 399, 400, 799, 800)]
    np.testing.assert_allclose(found, [1e-3, 1e-3, 1e-4, 1e-4, 1e-5], rtol=1e-5)
    schedule = learning_rate(completed(**settings, decay_factor=0.96))
    assert float(schedule(999)) == pytest.approx(1e-3 * 0.96**2)


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


def test_no_steps_score_and_export_the_features_as_they_are(tmp_path):
    arguments = [*SMALL, "--loss", "triplet", "--steps", "0", "--embedding_dim", "null"]
    printed = run(*arguments, "--run", "features", cwd=tmp_path)
    scores = scores_of(tmp_path / "runs" / "features")
    assert "trained" not in scores
    assert scores["train_seconds"] == 0
    assert f"{scores['untrained']['recall@1']:.4f}" in printed
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
    evaluated = programs.run(evaluate.main, "saved_models/features", "--nmi", "false", cwd=tmp_path)
    assert evaluated.code == 0, evaluated.err
    scored = json.loads((tmp_path / "runs" / "features" / "evaluation.json").read_text())
    assert scored["scores"]["recall@1"] == pytest.approx(found, abs=2e-3)


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


def test_density_alone_measures_the_classes_and_learns_a_target_for_each(tmp_path):
    options = ["--loss", "density", "--loss_options.alpha_multiplier", "30"]
    options += ["--head_multiplier", "7", "--steps", "4", "--checkpoint_every", "2", "--run", "d"]
    printed = run(*SMALL, *options, cwd=tmp_path)
    assert "Embedding the training images" in printed
    model = read_model(tmp_path / "runs" / "d" / "checkpoint.keras")
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


def test_what_a_run_cannot_serve_is_said_before_the_images_are_embedded(tmp_path):
    memory = ["--loss", "memory", "--loss_options.base", "contrastive", "--loss_options.size", "64"]
    sizes = ["--loss", "matryoshka", "--loss_options.base", "cosface", "--loss_options.dims", "[2]"]
    share = ["--loss", "sampled_classes", "--loss_options.base", "cosface"]
    for flags, expected in (
        (memory, "`start_step` must be below the steps, or the memory is never used"),
        (sizes, "the largest of `dims` must be the width of the embeddings"),
        ([*share, "--loss_options.rate", "0.1"], "`rate` must sample at least as many classes"),
    ):
        flags = [*SMALL, *flags, "--steps", "9", "--run", "r"]
        result = programs.run(train.main, *flags, cwd=tmp_path)
        assert expected in result.sentence
        assert "Embedding" not in result.out
        assert not (tmp_path / "runs" / "r").exists()


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
    ("loss", "options"),
    [
        ("memory", {"base": "multi_similarity", "size": 256, "start_step": 0}),
        ("sampled_classes", {"base": "cosface", "rate": 0.9}),
    ],
)
def test_trains_with_layers_that_have_no_weights_to_train(loss, options, tmp_path):
    flags = [f"--loss_options.{name}={value}" for name, value in options.items()]
    small = ["--classes_per_batch", "2", "--images_per_class", "2"]
    run(*SMALL, "--loss", loss, *flags, *small, "--steps", "2", "--run", "r", cwd=tmp_path)
    logs = (tmp_path / "runs" / "r" / "logs" / "epochs.csv").read_text().splitlines()
    assert ("drift_cosine" in logs[0]) == (loss == "memory")
    assert ("proxy_degrees" in logs[0]) == (loss == "sampled_classes")


def test_shuffled_batches_train_proxies_from_class_means_and_resume(tmp_path):
    flags = ["--run", "r", "--loss", "proxy_anchor"]
    flags += ["--sampler", "shuffled", "--images_per_class", "1", "--clip_value", "0.001"]
    flags += ["--freeze_batch_norm", "true", "--weight_decay", "0.01", "--checkpoint_every", "1"]
    printed = run(*SMALL, *flags, "--steps", "1", cwd=tmp_path)
    assert "Embedding the training images for the loss" in printed
    checkpoint = tmp_path / "runs" / "r" / "checkpoint.keras"
    before = read_model(checkpoint)
    printed = run("--run", "r", "--resume", "--steps", "3", cwd=tmp_path)
    assert "Embedding the training images for the loss" not in printed
    after = read_model(checkpoint)
    assert (int(after.optimizer.iterations), after.optimizer.clipvalue) == (3, 0.001)
    for model in (before, after):
        for layer in model.embedder.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                assert not layer.trainable
                assert not np.array(layer.moving_mean).any()
    moved = np.array(after.loss.layer.proxies) - np.array(before.loss.layer.proxies)
    assert np.abs(moved).max() > 0


def test_settings_of_a_run_reach_its_network_and_optimizer():
    dataset = small_dataset()
    recipe = completed(backbone="mobilenet_v2", pooling="average+max", clip_norm=2.0)
    wide = dataclasses.replace(dataset, image_size=(32, 32, 3))
    model = train.build_model(recipe, dataset.train, wide)
    assert model.embedder.get_layer("average_and_max").output.shape == (None, 1280)
    assert model.optimizer.global_clipnorm == 2.0


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_a_run_of_mixed_precision_scores_and_exports_in_float32(precision, tmp_path):
    name = ["--run", "mixed"]
    run(*SMALL, *TWO_STEPS, *name, "--precision", precision, cwd=tmp_path)
    run(*name, "--resume", "--steps", "4", cwd=tmp_path)
    model = read_model(tmp_path / "runs" / "mixed" / "checkpoint.keras")
    policies = {layer.dtype_policy.name for layer in model.embedder.layers}
    assert policies == {precision, "float32"}
    assert keras.config.dtype_policy().name == "float32"
    digits = pipelines.load("digits").test
    float32 = in_float32(model.embedder).predict(digits.images, verbose=0)
    scores = json.loads((tmp_path / "runs" / "mixed" / "scores.json").read_text())
    assert scores["trained"]["recall@1"] == recall_at_k(float32, digits.labels)[1]
    served = tf.saved_model.load(str(tmp_path / "saved_models" / "mixed" / "2"))
    images = tf.cast(digits.images[:8], tf.float32)
    embeddings = served.signatures["embed_images"](images=images)["embedding"]
    np.testing.assert_allclose(embeddings, float32[:8], atol=1e-6)
    assert np.abs(model.embed(digits.images[:8]) - float32[:8]).max() > 1e-5


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            ["memory", "--loss_options.base", "npair", "--loss_options.size", "8"],
            "size=8, batch=20",
        ),
        (
            ["sampled_classes", "--loss_options.base", "cosface", "--loss_options.rate", "0.5"],
            "rate=0.5, sampled=3, of_batch=5",
        ),
    ],
)
def test_a_batch_that_the_loss_cannot_take_is_rejected_before_training(flags, expected, tmp_path):
    assert expected in rejection(*SMALL, *TWO_STEPS, "--loss", *flags, cwd=tmp_path)
    assert not (tmp_path / "runs").exists()
