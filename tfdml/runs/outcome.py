"""Scores of a run on its unseen classes: whether it learned, and what to try where it did not."""

import dataclasses

import pipelines
from tfdml.runs.recipe import FEW_CLASSES

NEIGHBOURS = (1, 2, 4, 8)
PAIRS = 2000  # of each kind, to judge a learned similarity by
FEW_STEPS = 500  # of which some losses change little
COLLAPSED = 0.6  # area under its ROC curve, where chance is 0.5


def score(embeddings, images, model):
    """Recall@K of the images to score, and the ROC AUC of a similarity that the loss learned.

    Args:
        embeddings: (n, dim) floats, of `images.test`.
        images: `Images`.
        model: `EmbeddingModel`.

    Returns:
        {`recall@K` or `similarity_auc`: float}.
    """
    from tfdml.evaluation import apart, recall_at_k

    counts = [k for k in NEIGHBOURS if k <= pipelines.rows_to_find(images.test, images.queries)]
    data, gallery = apart(embeddings, images.test.labels, images.queries)
    recalls = recall_at_k(*data, k=counts, **gallery)
    scores = {f"recall@{k}": recall for k, recall in recalls.items()}
    if model.loss.traits.learns_similarity:
        scores["similarity_auc"] = similarity_auc(embeddings, images.test.labels, model.similarity)
    return scores


def similarity_auc(embeddings, labels, similarity):
    """Area under the ROC curve of a similarity, over pairs of one class and of two.

    Args:
        embeddings: (n, dim) floats.
        labels: (n,) integers.
        similarity: Callable of rows (m, dim) and (m, dim) to (m,) floats.
    """
    import numpy as np
    from sklearn.metrics import roc_auc_score

    from tfdml.evaluation.pair_scores import sample_pairs

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
    default = (
        dataclasses.replace(recipe, learning_rate=None).completed(num_classes)[0].learning_rate
    )
    if recipe.learning_rate > default:
        yield f"The default learning rate, {default:g}: leave out --learning_rate"
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
    if recipe.learning_rate == default and not scores.get("improved"):
        yield f"A lower learning rate: --learning_rate {default / 10:g}"
