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
    usual = dataclasses.replace(recipe, learning_rate=None).completed(num_classes)[0].learning_rate
    if recipe.learning_rate > usual:
        yield f"The default learning rate, {usual:g}: leave out --learning_rate"
    elif recipe.learning_rate == usual and not scores.get("improved"):
        yield f"A lower learning rate: --learning_rate {usual / 10:g}"
    if num_classes < FEW_CLASSES:
        yield f"More classes: {num_classes} are few to learn from"
        return
    if recipe.steps < FEW_STEPS or scores.get("similarity_collapsed"):
        yield f"More steps: --steps {max(FEW_STEPS, 2 * recipe.steps)}"
    yield f"Another objective: --loss {'contrastive' if recipe.loss == 'npair' else 'npair'}"


def plot_training(log, scores, path):
    """Plots the losses of a CSV log, and scores before and after."""
    epochs = list(csv.DictReader(read_text(log).splitlines()))
    figure = Figure(figsize=(10, 4), layout="constrained")
    loss_axes, score_axes = figure.subplots(1, 2)
    numbers, label = [int(row["epoch"]) + 1 for row in epochs], "epoch (checkpoint interval)"
    loss_axes.plot(numbers, [float(row["loss"]) for row in epochs], marker=".")
    loss_axes.set(title="Training loss", xlabel=label, ylabel="loss")
    for stage, style in (("untrained", "o--"), ("trained", "o-")):
        names = [name for name in scores[stage] if name.startswith("recall@")]
        score_axes.plot(names, [scores[stage][name] for name in names], style, label=stage)
    score_axes.set(title="Unseen classes", ylim=(0, 1))
    score_axes.legend(loc="lower right")
    figure.savefig(path)
