"""Scores of a run on its unseen classes: whether it learned, and what to try where it did not."""

import csv
import dataclasses

import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import roc_auc_score

import pipelines
from tfdml.evaluation import apart, paired_bootstrap, retrieval_scores_per_query
from tfdml.evaluation.comparison import ScoredQueries, load_queries, save_queries
from tfdml.evaluation.nearest_mean import unit_rows
from tfdml.evaluation.pair_scores import sample_pairs
from tfdml.files import read_text
from tfdml.runs.folders import FROZEN
from tfdml.runs.network import embed_scored, embed_with_features
from tfdml.runs.recipe import FEW_CLASSES

STAGES = {"untrained": "o--", "frozen": "s:", "trained": "o-"}  # and their lines in the plot
NEIGHBOURS = (1, 2, 4, 8)
PAIRS = 2000  # of each kind, to judge a learned similarity by
FEW_STEPS = 500  # of which some losses change little
COLLAPSED = 0.6  # area under its ROC curve, where chance is 0.5


def score(embeddings, images, model=None):
    """{`recall@K` or `similarity_auc`: float} of the images to score, and `ScoredQueries`."""
    counts = [k for k in NEIGHBOURS if k <= pipelines.rows_to_find(images.test, images.queries)]
    data, gallery = apart(embeddings, images.test.labels, images.queries)
    hits = retrieval_scores_per_query(*data, k=counts, metrics="recall", **gallery)
    scores = {name: float(values.mean()) for name, values in hits.items()}
    if model and model.loss.traits.learns_similarity:
        scores["similarity_auc"] = similarity_auc(embeddings, images.test.labels, model.similarity)
    return scores, ScoredQueries({"recall@1": hits["recall@1"]}, data[1], {})


def score_untrained(run):
    """{stage: scores} before a training; with those of frozen features, whose hits it keeps."""
    print("Scoring the untrained embedder", flush=True)
    if not run.recipe.has_frozen:
        return {"untrained": score(embed_scored(run.trained, run.seen), run.images, run.model)[0]}
    embeddings, features = embed_with_features(run.trained, run.seen)
    untrained, _ = score(embeddings, run.images, run.model)
    frozen, queries = score(unit_rows(features), run.images)
    save_queries(run.folder / FROZEN, queries.values, queries.labels, images={})
    return {"untrained": untrained, "frozen": frozen}


def score_trained(run):
    """As `score_untrained`, after the training, and the `paired_bootstrap` of both."""
    print("Scoring the trained embedder", flush=True)
    embeddings = embed_scored(run.trained, run.seen)
    trained, queries = score(embeddings, run.images, run.model)
    path = run.folder / FROZEN
    if not path.is_file():
        return {"trained": trained}
    frozen = load_queries(path)
    gain = paired_bootstrap(queries.values, frozen.values, frozen.labels)["recall@1"]
    return {"trained": trained, "trained_minus_frozen": gain}


def gain_text(gain):
    """A line of text of `trained_minus_frozen`."""
    numbers = "{difference:+.4f} [{low:+.4f}, {high:+.4f}]".format(**gain)
    return f"Recall@1, trained minus frozen: {numbers}, 95 % bootstrap interval over classes"


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
    gain = scores.get("trained_minus_frozen")
    if gain and gain["low"] <= 0 and after != 1:
        lost = "lost to" if gain["high"] < 0 else "did not show a gain over"
        yield f"Training {lost} the frozen features."
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
    for stage, style in ((stage, style) for stage, style in STAGES.items() if stage in scores):
        names = [name for name in scores[stage] if name.startswith("recall@")]
        score_axes.plot(names, [scores[stage][name] for name in names], style, label=stage)
    score_axes.set(title="Unseen classes", ylim=(0, 1))
    score_axes.legend(loc="lower right")
    figure.savefig(path)
