"""Trains an embedder on images, scores it on unseen classes and exports it for TF Serving.

    tfdml-train --loss lifted
    tfdml-train --loss triplet --dataset folder --data_dir photos \
        --backbone mobilenet_v2 --weights imagenet

Writes runs/NAME/ (config.yaml, trained_classes.json, checkpoint.keras, logs/, scores.json,
training.png) and saved_models/NAME/1/, and prints Recall@K of the classes that were not trained on,
before and after.
"""

import dataclasses
import multiprocessing
import os
import sys
import time

import pipelines
import tfdml
from tfdml import runs
from tfdml.checks import keras_setting
from tfdml.command_line import one_sentence
from tfdml.quiet import keep_printing
from tfdml.runs.folders import SAVED_MODELS
from tfdml.runs.recipe_flags import PROGRAM, parse
from tfdml.serving.options import export_options
from tfdml.serving.versions import next_version

ERRORS = ValueError, TypeError, OSError, ImportError, FloatingPointError


def main(arguments=None):
    keep_printing()
    recipe, resume, devices = parse(sys.argv[1:] if arguments is None else arguments)
    with (
        one_sentence(PROGRAM, *ERRORS),
        runs.prepare(recipe, devices, resume=resume, kept=True) as run,
        run.resumable(),
    ):
        if not devices.is_chief:
            run.train()
            return
        scores = fit(run)
        if keras_setting("backend")[0] == "tensorflow":
            report(run, scores)
            version = export(run, scores)
            print(f"Run: {run.folder}   Model: {version}")
            return
        run.keep_model()
        run.held.close()  # for the process that goes on
        end_on_tensorflow(recipe.run)


def end_on_tensorflow(name):
    """Ends a run that lacks its export alone in another process: SavedModels are TensorFlow's."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    spawned = multiprocessing.get_context("spawn")
    process = spawned.Process(target=main, args=(["--run", name, "--resume"],))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(process.exitcode)


def fit(run):
    """Trains to the last step, if any; returns the scores before it and after it."""
    scores, steps, start = run.kept_scores(), run.recipe.steps, run.step
    if "trained" in scores and scores.get("steps") == steps:  # stopped in the export
        return scores
    if not scores:
        scores = {**run.images.counts, **runs.score_untrained(run)}
        run.keep_scores(scores)
    began = time.perf_counter()
    if run.recipe.tune == "frozen":
        run.keep_model()
    if steps:
        run.train(runs.watching_callbacks(run))
    seconds = time.perf_counter() - began
    if steps:
        scores |= {"steps": steps, **runs.score_trained(run)}
        scores |= runs.judged(scores)
    scores |= {
        "scored_classes": "validation" if run.recipe.validation_share else "test",
        "levels": run.recipe.levels or run.model.loss.levels,
        "learns_similarity": run.model.loss.traits.learns_similarity,
        "train_seconds": round(seconds, 1),
        "train_seconds_from_step": start,
    }
    run.keep_scores(scores)
    return scores


def report(run, scores):
    """Draws the training, and prints its scores and what to try where they did not rise."""
    recipe = run.recipe
    if recipe.steps:
        runs.plot_training(run.folder / "logs" / "epochs.csv", scores, run.folder / "training.png")
    start = scores["train_seconds_from_step"]
    steps = f"{recipe.steps:,} step" + "s" * (recipe.steps != 1)
    if recipe.steps > start:
        steps += f", the last {recipe.steps - start:,}" if start else ""
        steps += f" in {scores['train_seconds']:.0f} s"
    shown = {stage: scores[stage] for stage in runs.STAGES if stage in scores}
    what = f"{recipe.loss}, {steps}"
    if recipe.tune == "frozen":  # the untrained embedder is no other
        what = f"features of {recipe.backbone}"
        del shown["untrained"]
    print(f"\nUnseen {scores['scored_classes']} classes of {recipe.dataset}; {what}:")
    print(runs.scores_table(shown))
    if "trained_minus_frozen" in scores:
        print(runs.gain_text(scores["trained_minus_frozen"]))
    failures = " ".join(runs.failures(scores))
    if failures:
        print(f"\n{failures} Try first:")
        for advice in runs.what_to_try(recipe, run.images.train.num_classes, scores):
            print(f"  {advice}")


def export(run, scores):
    """Writes the next version of the model; returns its path."""
    dataset, embedder = run.images.dataset, runs.in_float32(run.model.embedder)
    version = next_version(SAVED_MODELS / run.recipe.run)
    training = {
        "recipe": dataclasses.asdict(run.recipe),
        "trained_classes": list(dict.fromkeys([*run.images.train.names, *run.earlier])),
        "scores": scores,
    }
    if run.images.train.inputs is not None:
        return runs.export_head(embedder, version, training)
    kind = dataset.image_size, dataset.preprocessing
    options = export_options(run.recipe.export_options)
    return tfdml.serving.export_model(
        embedder,
        version,
        read_image=pipelines.Reader(*kind),
        loss=run.model.loss,
        assets=runs.assets_of(dataset),
        options=options,
        images=runs.run_export.sample(run.images.test, *kind) if options.formats else None,
        metadata=training,
    )
