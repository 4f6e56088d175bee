"""Trains an embedder on images, scores it on unseen classes and exports it for TF Serving.

    tfdml-train --loss lifted
    tfdml-train --loss triplet --dataset folder --data_dir photos \
        --backbone mobilenet_v2 --weights imagenet

Writes runs/NAME/ (config.yaml, trained_classes.json, checkpoint.keras, logs/, scores.json,
training.png) and saved_models/NAME/1/, and prints Recall@K of the classes that were not trained on,
before and after.
"""

import collections
import contextlib
import dataclasses
import functools
import io
import json
import math
import shlex
import sys
import time

import pipelines
from tfdml.checks import check_keras, unknown_name
from tfdml.command_line import as_yaml, one_sentence, program_call, program_name, verbosity
from tfdml.files import check_writable, read_text, write_text
from tfdml.losses import LOSSES
from tfdml.models import BACKBONES
from tfdml.quiet import keep_printing
from tfdml.runs import folders, outcome
from tfdml.runs.checkpoints import check_incomplete, classes_before, load_checkpoint
from tfdml.runs.devices import HELP, of_environment
from tfdml.runs.folders import EARLIER, RUNS, SAVED_MODELS, TRAINED, classes_text, read_classes
from tfdml.runs.images import (
    images_to_score,
    load_images,
    sample_to_embed,
    training_batches,
    warn_of_trained,
)
from tfdml.runs.interrupts import resumable
from tfdml.runs.model import build_model, levels_of, with_loss_options
from tfdml.runs.recipe import Recipe
from tfdml.runs.requirements import check_files, check_model
from tfdml.runs.table import RecipeParser

PROGRAM = program_name("train")


def main(arguments=None):
    keep_printing()
    recipe, resume, devices = parse(sys.argv[1:] if arguments is None else arguments)
    folder = RUNS / recipe.run
    errors = ValueError, TypeError, OSError, ImportError, FloatingPointError
    together = devices.rejected_together()
    with together, one_sentence(PROGRAM, *errors), contextlib.ExitStack() as run:
        check_keras()
        if devices.is_chief:
            check_writable(folder, SAVED_MODELS / recipe.run)
            if resume:
                run.enter_context(folders.only_writer(folder))
        if resume:
            check_incomplete(recipe)
        check_files(recipe, starts=not (resume and (folder / "checkpoint.keras").is_file()))
        run.enter_context(devices.speaking())
        devices = devices.started()
        devices.check(recipe)
        if not pipelines.is_listed(recipe.dataset, recipe.data_dir, recipe.skip_invalid):
            check_model(recipe)  # before minutes of reading images
        images = load_images(recipe)
        earlier = read_classes(folder, EARLIER) if resume else classes_before(recipe)
        warn_of_trained("train", earlier, images.test)
        recipe = with_defaults(recipe, images.train)
        check_model(recipe)
        devices.check(recipe)
        model = load_checkpoint(recipe, folder) if resume else None
        step = 0 if model is None else int(model.optimizer.iterations)
        # Before the model: a sampler may reject the images, and some losses embed all of them.
        part = devices.part
        batches, callbacks = training_batches(recipe, step, images.train, images.dataset, part)
        if model is None:
            model = build_model(recipe, images.train, images.dataset)
            recipe = with_loss_options(recipe)
        files = {
            "config.yaml": as_yaml(dataclasses.asdict(recipe)),
            TRAINED: classes_text(images.train.names),
        }
        if earlier:
            files[EARLIER] = classes_text(earlier)
        settings = dataclasses.replace(recipe, run=None)
        devices.check_agree(repr(settings), files[TRAINED], str(step))
        if resume and devices.is_chief:
            folders.check_same_images(folder, files, counts_of(images))
            write_text(folder / "config.yaml", files["config.yaml"])
        elif devices.is_chief:
            folders.make_folders(folder, files)
            run.enter_context(folders.only_writer(folder))
        go_on = f"Go on with: {program_call('train')} --run {shlex.quote(recipe.run)} --resume"
        go_on += f" --devices {devices.text}" if devices.text else ""
        with resumable(go_on, images), devices.stopping_together(go_on):
            if not devices.is_chief:
                train(recipe, model, batches, devices, [*stops(recipe), *callbacks])
                return
            scores = fit(recipe, folder, model, images, batches, callbacks, devices)
            report(recipe, folder, scores, images.train.num_classes)
            version = export(recipe, model, images, scores, earlier)
    print(f"Run: {folder}   Model: {version}")


def parse(arguments):
    """The recipe, whether it resumes, and its devices. Imports neither TensorFlow nor Keras."""
    with one_sentence(PROGRAM, ValueError):
        devices = of_environment()
    with devices.rejected_together(), one_sentence(PROGRAM, ValueError):
        parser = parser_of_recipes()
        given = parser.parse_args(arguments)
        devices = devices.named(given.devices)
        recipe = recipe_to_run(parser, given, arguments, devices)
    return recipe, given.resume, devices


def recipe_to_run(parser, given, arguments, devices):
    """The recipe of the parsed arguments; exits with code 2 if it cannot be run."""
    recipe = resumed(parser, given.run, arguments) if given.resume else parser.settings_of(given)
    check_names(parser, recipe)
    if recipe.run is None:
        name = folders.free_name(f"{recipe.dataset}_{recipe.loss}")
        return dataclasses.replace(recipe, run=name)
    if devices.is_chief and not given.resume and folders.is_taken(recipe.run):
        go_on = folders.how_to_go_on(recipe.run)
        parser.error(f"run {recipe.run!r} exists. Choose another --run, or {go_on}")
    return recipe


def recipe_of(flags):
    """The recipe of flags, whatever runs there are; exits with code 2 if they are wrong."""
    parser = parser_of_recipes()
    recipe = parser.settings_of(parser.parse_args(flags))
    check_names(parser, recipe)
    return recipe


def split_at_dashes(parser, words, rejected):
    """The words of another program, before `--`, and the flags of this one, behind it.

    Args:
        parser: Of the other program; exits with code 2 for a rejected flag.
        words: List of texts.
        rejected: Names of flags, such as `--run`.
    """
    end = words.index("--") if "--" in words else len(words)
    flags = words[end + 1 :]
    for flag in flags:
        if flag.partition("=")[0] in rejected:
            parser.error(f"{flag} cannot stand behind --")
    return words[:end], flags


@functools.cache
def parser_of_recipes(program=PROGRAM):
    names = {"losses": sorted(LOSSES), "datasets": pipelines.names(), "backbones": BACKBONES}
    parser = RecipeParser(Recipe, names, __doc__, prog=program)
    explained = "YAML file of settings, or with --row of a table; flags win."
    parser.add_argument("--config", action="config", help=explained)
    parser.add_argument("--row", type=str, help="Name of a row of the table of --config.")
    explained = "Go on with the run named by --run after a stop, or train it for more --steps."
    parser.add_argument("--resume", action="store_true", help=explained)
    parser.add_argument("--devices", type=str, help=HELP)
    return parser


def check_names(parser, recipe):
    """Exits with code 2 and the names that exist, if the recipe has another."""
    for kind, name, available in (
        ("loss", recipe.loss, LOSSES),
        ("dataset", pipelines.entry_of(recipe.dataset), pipelines.names()),
        ("backbone", recipe.backbone, BACKBONES),
    ):
        if name not in available:
            parser.error(unknown_name(kind, name, available))


def resumed(parser, run, arguments):
    """The recipe of a run that stopped; exits with code 2 if the arguments change it."""
    if not run:
        parser.error("--resume needs --run NAME")
    saved = RUNS / run / "config.yaml"
    if not saved.is_file():
        parser.error(f"--resume needs --run NAME of a run that exists. Found no {saved}")
    before = parser.settings_of(parser.parse_args(["--config", str(saved)]))
    recipe = parser.settings_of(parser.parse_args(["--config", str(saved), *arguments]))
    # As with other settings, those of the run hold for options of the loss that are not given.
    options = {**before.loss_options, **recipe.loss_options}
    recipe = dataclasses.replace(recipe, loss_options=options)
    for name, value in dataclasses.asdict(recipe).items():
        was = getattr(before, name)
        if value != was and not (name == "steps" and value > was):
            parser.error(
                f"--{name} differs from the run's: {value!r}, was {was!r}. A run goes on as it "
                "began, or for more --steps; start a new one for other settings"
            )
    return recipe


def with_defaults(recipe, split):
    """The recipe with the defaults that follow from the weights and the classes, printed.

    A sentence follows if a batch takes more images of each class than the largest has.
    """
    recipe, reasons = recipe.completed(split.num_classes)
    for name, reason in reasons.items():
        print(f"--{name} {reason}")
    most = max(collections.Counter(split.labels.tolist()).values())
    if recipe.sampler in ("balanced", "mixed") and most < recipe.images_per_class:
        print(
            f"--images_per_class {recipe.images_per_class} exceeds the largest class, which has "
            f"{most} images: batches repeat images"
        )
    return recipe


def counts_of(images):
    return {
        "training_images": len(images.train.labels),
        "scored_images": len(images.test.labels),
    }


def fit(recipe, folder, model, images, batches, callbacks, devices):
    """Trains to the last step; returns the scores of the untrained and the trained embedder.

    Those of the untrained alone if there are no steps.
    """
    start = int(model.optimizer.iterations)
    scores_path = folder / "scores.json"
    scores = json.loads(read_text(scores_path)) if scores_path.exists() else {}
    if "trained" in scores and scores.get("steps") == recipe.steps:  # stopped in the export
        return scores
    if not scores:
        scores |= counts_of(images)
        scores["untrained"] = score("Scoring the untrained embedder", model, images)
        write_text(scores_path, json.dumps(scores, indent=2) + "\n")
    seconds = 0.0
    if recipe.steps:
        began = time.perf_counter()
        watching = callbacks_of(recipe, folder, images, start, model.loss)
        train(recipe, model, batches, devices, [*stops(recipe), *watching, *callbacks])
        seconds = time.perf_counter() - began
        scores["steps"] = recipe.steps
        scores["trained"] = score("Scoring the trained embedder", model, images)
        scores |= outcome.judged(scores)
    scores["scored_classes"] = "validation" if recipe.validation_share else "test"
    scores["levels"] = levels_of(recipe, model.loss)
    scores["learns_similarity"] = model.loss.traits.learns_similarity
    scores["train_seconds"] = round(seconds, 1)
    scores["train_seconds_from_step"] = start
    write_text(scores_path, json.dumps(scores, indent=2) + "\n")
    return scores


def train(recipe, model, batches, devices, callbacks):
    """Trains to the last step."""
    start, interval = int(model.optimizer.iterations), recipe.checkpoint_every
    if start >= recipe.steps:
        return
    devices.fit(
        model,
        batches,
        steps_per_epoch=interval,
        initial_epoch=math.ceil(start / interval),
        epochs=sys.maxsize,  # `StopAt` ends it: a step that overflows float16 is no update
        callbacks=callbacks,
    )


def score(title, model, images):
    from tfdml.models.precision import in_float32

    print(title, flush=True)
    batches = images_to_score(images.test, images.dataset)
    embeddings = in_float32(model.embedder).predict(batches, verbose=verbosity())
    return outcome.score(embeddings, images, model)


def stops(recipe):
    """What stops the training, on every worker; before what saves or scores a model."""
    from tfdml import callbacks

    return [callbacks.StopOnNaN(), callbacks.StopAt(recipe.steps)]


def callbacks_of(recipe, folder, images, start, loss):
    """What watches, logs and saves the training, in this order."""
    import keras

    from tfdml import callbacks
    from tfdml.layers import EmbeddingMemory

    if recipe.validation_share:
        batches = images_to_score(images.test, images.dataset)
        yield callbacks.RetrievalScores(batches, images.test.labels)
    if loss.traits.compares_batches:
        size = next(layer.size for layer in loss.layers if isinstance(layer, EmbeddingMemory))
        images_per_epoch = recipe.batch_size * recipe.checkpoint_every
        sample = sample_to_embed(images.train, images.dataset)
        yield callbacks.EmbeddingDrift(sample, epochs=math.ceil(size / images_per_epoch))
    yield callbacks.LossLogs(folder / "logs" / "train")
    yield keras.callbacks.TensorBoard(str(folder / "logs"))
    log = folder / "logs" / "epochs.csv"
    if start:
        drop_rows(log, math.ceil(start / recipe.checkpoint_every))
    yield keras.callbacks.CSVLogger(str(log), append=start > 0)
    yield callbacks.Checkpoint(folder / "checkpoint.keras")
    in_terminal = sys.stderr.isatty()  # where the bar is drawn
    yield (callbacks.ProgressBar if in_terminal else callbacks.ProgressLines)(recipe.steps)


def drop_rows(log, epoch):
    """Drops the rows from an epoch on, logged before a crash, for the epochs are trained again."""
    lines = read_text(log).splitlines() if log.is_file() else []
    lines = [line for line in lines if line]  # on Windows, Keras adds empty ones
    kept = lines[:1] + [line for line in lines[1:] if int(line.partition(",")[0]) < epoch]
    if kept != lines:
        write_text(log, "\n".join(kept) + "\n")


def report(recipe, folder, scores, num_classes):
    from tfdml.runs.plots import plot_training
    from tfdml.runs.tables import scores_table

    if recipe.steps:
        plot_training(folder / "logs" / "epochs.csv", scores, folder / "training.png")
    start = scores["train_seconds_from_step"]
    steps = f"{recipe.steps:,} step" + "s" * (recipe.steps != 1)
    if recipe.steps > start:
        steps += f", the last {recipe.steps - start:,}" if start else ""
        steps += f" in {scores['train_seconds']:.0f} s"
    print(
        f"\nUnseen {scores['scored_classes']} classes of {recipe.dataset}; {recipe.loss}, "
        f"{steps}:\n{scores_table(scores)}"
    )
    failures = " ".join(outcome.failures(scores))
    if failures:
        print(f"\n{failures} Try first:")
        for advice in outcome.what_to_try(recipe, num_classes, scores):
            print(f"  {advice}")


def export(recipe, model, images, scores, earlier):
    import numpy as np

    from tfdml import serving
    from tfdml.models.precision import in_float32
    from tfdml.serving.exported import MEAN_IMAGE
    from tfdml.serving.metadata import places_of
    from tfdml.serving.options import export_options
    from tfdml.serving.versions import next_version

    dataset, mean = images.dataset, images.dataset.preprocessing.mean_image
    mean_file, assets = io.BytesIO(), {}
    if mean is not None:
        np.save(mean_file, mean)
        assets[MEAN_IMAGE] = mean_file.getvalue()
    return serving.export_model(
        in_float32(model.embedder),
        next_version(SAVED_MODELS / recipe.run),
        read_image=pipelines.Reader(dataset.image_size, dataset.preprocessing),
        loss=model.loss,
        assets=assets,
        options=export_options(recipe.export_options),
        metadata={
            "recipe": dataclasses.asdict(recipe),
            "places": places_of(vars(recipe)),
            "trained_classes": list(dict.fromkeys([*images.train.names, *earlier])),
            "scores": scores,
        },
    )
