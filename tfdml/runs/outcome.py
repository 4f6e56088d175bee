"""Scores of a run on its unseen classes: whether it learned, and what to try where it did not."""

import csv
import dataclasses

import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import roc_auc_score

import pipelines
from tfdml.evaluation import apart, recall_at_k
from tfdml.evaluation.pair_scores import sample_pairs
from tfdml.files import read_text
from tfdml.runs.recipe import FEW_CLASSES

NEIGHBOURS = (1, 2, 4, 8)
PAIRS = 2000  # of each kind, to judge a learned similarity by
FEW_STEPS = 500  # of which some losses change little
COLLAPSED = 0.6  # area under its ROC curve, where chance is 0.5
_TARGETS = ("target_mean", "target_lowest", "target_highest")


def score(embeddings, images, model):
    """{`recall@K` or `similarity_auc`: float} of the images to score.

    The second is the area under the ROC curve of a similarity that the loss learned.
    """
    counts = [k for k in NEIGHBOURS if k <= pipelines.rows_to_find(images.test, images.queries)]
    data, gallery = apart(embeddings, images.test.labels, images.queries)
    recalls = recall_at_k(*data, k=counts, **gallery)
    scores = {f"recall@{k}": recall for k, recall in recalls.items()}
    if model.loss.traits.learns_similarity:
        scores["similarity_auc"] = similarity_auc(embeddings, images.test.labels, model.similarity)
    return scores


def similarity_auc(embeddings, labels, similarity):
    """Area under the ROC curve of a similarity, over pairs of one class and of two."""
    pairs = np.concatenate(sample_pairs(labels, PAIRS))
    similarities = similarity(embeddings[pairs[:, 0]], embeddings[pairs[:, 1]])
    return float(roc_auc_score(np.repeat([True, False], PAIRS), similarities))


def judged(scores):
    """Whether a run improved retrieval and whether its learned similarity collapsed: booleans."""
    before, after = scores["untrained"], scores["trained"]
    judgement = {"improved": after["recall@1"] > before["recall@1"]}
    if "similarity_auc" in after:
        judgement["similarity_collapsed"] = after["similarity_auc"] < COLLAPSED
    return judgement


def failures(scores):
    """What went wrong, as sentences, by what `judged` found."""
    before, after = (scores.get(stage, {}).get("recall@1") for stage in ("untrained", "trained"))
    if after is not None and after <= before and after < 1:
        yield f"Training did not raise Recall@1: {before:.4f} → {after:.4f}."
    if scores.get("similarity_collapsed"):
        auc = scores["trained"]["similarity_auc"]
        yield (
            "The learned similarity does not distinguish classes: the area under its ROC curve is "
            f"{auc:.2f}, where chance is 0.50."
        )


def what_to_try(recipe, num_classes, scores):
    """What to change first after a failure, as sentences."""
    if "preset" in recipe.loss_options:
        yield "The default options of the loss: leave out --loss_options.preset"
    usual = dataclasses.replace(recipe, learning_rate=None).completed(num_classes)[0].learning_rate
    if recipe.learning_rate > usual:
        yield f"The default learning rate, {usual:g}: leave out --learning_rate"
    if num_classes < FEW_CLASSES:
        yield f"More classes: {num_classes} are few to learn from"
    elif recipe.steps < FEW_STEPS or scores.get("similarity_collapsed"):
        yield f"More steps: --steps {max(FEW_STEPS, 2 * recipe.steps)}"
    if num_classes >= FEW_CLASSES:
        yield f"Another objective: --loss {'contrastive' if recipe.loss == 'npair' else 'npair'}"
    if recipe.weights and recipe.head_multiplier < 10:
        yield "New layers that learn faster than the pretrained ones: --head_multiplier 10"
    classes = min(2 * recipe.classes_per_batch, num_classes)
    classes -= classes % recipe.super_classes
    if classes > recipe.classes_per_batch:
        yield f"More negatives in a batch: --classes_per_batch {classes}"
    if recipe.learning_rate == usual and not scores.get("improved"):
        yield f"A lower learning rate: --learning_rate {usual / 10:g}"


def plot_training(log, scores, path):
    """Plots the losses of a CSV log, the targets of density in it, and scores before and after."""
    epochs = list(csv.DictReader(read_text(log).splitlines()))
    watched = bool(epochs) and "target_mean" in epochs[0]
    figure = Figure(figsize=(15 if watched else 10, 4), layout="constrained")
    loss_axes, score_axes, *target_axes = figure.subplots(1, 3 if watched else 2)
    numbers, label = [int(row["epoch"]) + 1 for row in epochs], "epoch (checkpoint interval)"
    loss_axes.plot(numbers, [float(row["loss"]) for row in epochs], marker=".")
    loss_axes.set(title="Training loss", xlabel=label, ylabel="loss")
    for axes in target_axes:
        mean, low, high = ([float(row[name]) for row in epochs] for name in _TARGETS)
        axes.plot(numbers, mean, label="mean")
        axes.fill_between(numbers, low, high, alpha=0.3, label="lowest to highest")
        axes.set(title="Targets of density", xlabel=label, ylabel="squared distance")
        axes.legend()
    for stage, style in (("untrained", "o--"), ("trained", "o-")):
        names = [name for name in scores[stage] if name.startswith("recall@")]
        score_axes.plot(names, [scores[stage][name] for name in names], style, label=stage)
    score_axes.set(title="Unseen classes", ylim=(0, 1))
    score_axes.legend(loc="lower right")
    figure.savefig(path)
