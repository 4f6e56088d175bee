"""Pair objectives whose positives and negatives are among other rows."""

import dataclasses

import numpy as np
import pytest
from backend import DOUBLE, value_and_gradient
from keras import ops

from tfdml import losses, pairwise
from tfdml.losses import Batch, PairLoss, References

LABELS = np.array([0, 0, 1, 1, 2, 2, 2, 3])
CASES = [
    ("binomial", {}),
    ("contrastive", {"average_over": "active"}),
    ("contrastive", {"average_over": "batch", "squared": False}),
    ("contrastive", {"average_over": "sum"}),
    ("histogram", {}),
    ("lifted", {}),
    ("lifted", {"variant": "max"}),
    ("lifted", {"variant": "sum"}),
    ("npair", {}),
    ("npair", {"l2": 0.1, "normalize": False, "scale": 1.0}),
    ("circle", {}),
    ("multi_similarity", {}),
    ("multi_similarity", {"epsilon": None}),
    ("ntxent", {}),
    ("recall_at_k", {"rank_temperature": 0.1}),
    ("roadmap", {"temperature": 0.1}),
    ("sincere", {}),
    ("smooth_ap", {"temperature": 0.1}),
    ("supcon", {}),
    ("triplet", {"margin": 0.3}),
    ("triplet", {"mining": "semihard"}),
    ("triplet", {"mining": "hard"}),
]
every_case = pytest.mark.parametrize(("name", "options"), CASES)


def against(loss, anchors, labels, references, reference_labels, positions):
    own, others = (
        loss.scaled(Batch(*map(ops.convert_to_tensor, pair)))
        for pair in ((labels, anchors), (reference_labels, references))
    )
    others = References(others.labels, others.embeddings, ops.convert_to_tensor(positions))
    return loss.call(dataclasses.replace(own, others=others))


def test_every_objective_over_pairs_is_tried():
    classes = {getattr(losses, class_name) for class_name in losses.LOSSES.values()}
    of_pairs = {kind for kind in classes if issubclass(kind, PairLoss)}
    assert of_pairs == {type(losses.get(name)) for name, _ in CASES}


@every_case
def test_a_batch_against_its_rows_in_another_order_is_the_loss_of_the_batch(name, options, rng):
    loss, x, order = losses.get(name, **options), rng.normal(size=(8, 5)), rng.permutation(8)
    expected, gradient = value_and_gradient(loss, LABELS, x)

    def of_reordered(labels, rows):
        positions = np.argsort(order)
        return against(loss, rows, labels, ops.take(rows, order, axis=0), labels[order], positions)

    assert expected != 0
    value, reordered_gradient = value_and_gradient(of_reordered, LABELS, x)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(reordered_gradient, gradient, atol=1e-12)


@every_case
def test_the_loss_against_one_reference_pair_equals_that_of_a_loop(name, options, rng):
    """Two anchors of two classes, and one reference of each."""
    loss = losses.get(name, **options)
    x, y = rng.normal(size=(2, 5)), rng.normal(size=(2, 5))
    unit = (
        (lambda rows: rows / np.linalg.norm(rows, axis=1, keepdims=True))
        if loss.normalize
        else np.array
    )
    a, b = unit(x), unit(y)
    squared = ((a[:, None] - b[None]) ** 2).sum(axis=2)
    root, dot = np.sqrt(squared), a @ b.T
    value = float(against(loss, x, np.array([4, 7]), y, np.array([4, 7]), np.array([-1, -1])))
    np.testing.assert_allclose(value, EXPECTED[name](loss, squared, root, dot, a, b), rtol=DOUBLE)


@every_case
def test_references_of_nobody_change_nothing(name, options, rng):
    loss, x, y = losses.get(name, **options), rng.normal(size=(4, 5)), rng.normal(size=(6, 5))
    labels, others, positions = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0, 2, 3]), np.full(4, -1)
    expected = float(against(loss, x, labels, y, others, positions))
    more, nobody = np.concatenate([y, y[:3]]), np.concatenate([others, np.full(3, pairwise.NOBODY)])
    assert expected != 0
    value = float(against(loss, x, labels, more, nobody, positions))
    np.testing.assert_allclose(value, expected, rtol=1e-12)


@pytest.mark.parametrize("average_over", ["sum", "batch"])
def test_contrastive_counts_a_pair_of_two_anchors_once_and_others_too(average_over, rng):
    loss = losses.get("contrastive", average_over=average_over, normalize=False)
    x, y = rng.normal(size=(2, 3, 2))
    labels, others = np.array([0, 0, 1]), np.array([0, 1, 1])
    references, order = np.concatenate([y, x]), np.array([3, 4, 5])
    value = float(against(loss, x, labels, references, np.concatenate([others, labels]), order))
    total = 0
    for i in range(3):
        for rows, classes, start in ((x, labels, i + 1), (y, others, 0)):
            for j in range(start, 3):
                squared = ((x[i] - rows[j]) ** 2).sum()
                total += squared if labels[i] == classes[j] else max(0, 1 - squared)
    expected = total / 3 if average_over == "batch" else total
    np.testing.assert_allclose(value, expected, rtol=DOUBLE)


def of_contrastive(loss, squared, root, dot, a, b):
    distances = squared if loss.squared else root
    terms = [distances[i, i] for i in (0, 1)]
    terms += [max(0, loss.margin - distances[i, 1 - i]) for i in (0, 1)]
    if loss.average_over == "active":
        return sum(terms) / sum(term > 0 for term in terms)
    return sum(terms) / (2 if loss.average_over == "batch" else 1)


def of_lifted(loss, squared, root, dot, a, b):
    total = 0
    for i in (0, 1):
        pushes = loss.margin - root[i, 1 - i], loss.margin - root[1 - i, i]
        push = {"smooth": np.logaddexp(*pushes), "max": max(pushes), "sum": sum(pushes)}
        total += max(0, push[loss.variant] + root[i, i]) ** 2
    return total / 2 / 2


def of_npair(loss, squared, root, dot, a, b):
    gaps = [np.log1p(np.exp(loss.scale * (dot[i, 1 - i] - dot[i, i]))) for i in (0, 1)]
    lengths = [(a[i] ** 2).sum() + (b[i] ** 2).sum() for i in (0, 1)]
    return np.mean(gaps) + loss.l2 / 2 * np.mean(lengths)


def of_binomial(loss, squared, root, dot, a, b):
    own = np.mean([np.log1p(np.exp(-loss.alpha * (dot[i, i] - loss.beta))) for i in (0, 1)])
    steep = loss.alpha * loss.negative_cost
    other = np.mean([np.log1p(np.exp(steep * (dot[i, 1 - i] - loss.beta))) for i in (0, 1)])
    return own + other


def of_histogram(loss, squared, root, dot, a, b):
    nodes = np.linspace(-1, 1, loss.num_bins)
    step = nodes[1] - nodes[0]

    def histogram(values):
        return sum(np.clip(1 - np.abs(nodes - value) / step, 0, 1) for value in values) / len(
            values
        )

    positive, negative = histogram(np.diag(dot)), histogram([dot[0, 1], dot[1, 0]])
    return (negative * np.cumsum(positive)).sum()


def of_triplet(loss, squared, root, dot, a, b):
    return np.mean([max(0, squared[i, i] - squared[i, 1 - i] + loss.margin) for i in (0, 1)])


def of_similarities(term):
    """The mean of a term of the similarity to the positive and that to the negative."""

    def expected(loss, squared, root, dot, a, b):
        return np.mean([term(loss, dot[i, i], dot[i, 1 - i]) for i in (0, 1)])

    return expected


def logistic(value):
    return 1 / (1 + np.exp(-value))


def of_softmax(loss, positive, negative):
    return np.log1p(np.exp((negative - positive) / loss.temperature))


def of_circle(loss, positive, negative):
    pull = max(0, 1 + loss.margin - positive) * (1 - loss.margin - positive)
    push = max(0, negative + loss.margin) * (negative - loss.margin)
    return np.logaddexp(0, loss.scale * (pull + push))


def of_multi_similarity(loss, positive, negative):
    if loss.epsilon is not None and negative + loss.epsilon <= positive:
        return 0
    pull = np.log1p(np.exp(-loss.alpha * (positive - loss.threshold))) / loss.alpha
    return pull + np.log1p(np.exp(loss.beta * (negative - loss.threshold))) / loss.beta


def of_recall(loss, positive, negative):
    rank = 1 + logistic((negative - positive) / loss.rank_temperature)
    return np.mean([1 - logistic(k - rank) for k in loss.k])


def of_smooth_ap(loss, positive, negative):
    return 1 - 1 / (1 + logistic((negative - positive) / loss.temperature))


def of_roadmap(loss, squared, root, dot, a, b):
    terms = []
    for i in (0, 1):
        gap = dot[i, 1 - i] - dot[i, i]
        step = logistic(gap / loss.temperature) + (0.5 if gap >= 0 else 0)
        if gap > loss.margin:
            step = loss.slope * (gap - loss.margin) + loss.offset
        terms.append(1 - 1 / (1 + step))
    far = [0.9 - dot[i, i] for i in (0, 1) if dot[i, i] < 0.9]
    near = [dot[i, 1 - i] - 0.6 for i in (0, 1) if dot[i, 1 - i] > 0.6]
    return np.mean(terms) + sum(np.mean(part) for part in (far, near) if part)


EXPECTED = {
    "circle": of_similarities(of_circle),
    "multi_similarity": of_similarities(of_multi_similarity),
    "ntxent": of_similarities(of_softmax),
    "recall_at_k": of_similarities(of_recall),
    "roadmap": of_roadmap,
    "sincere": of_similarities(of_softmax),
    "smooth_ap": of_similarities(of_smooth_ap),
    "supcon": of_similarities(of_softmax),
    "binomial": of_binomial,
    "contrastive": of_contrastive,
    "histogram": of_histogram,
    "lifted": of_lifted,
    "npair": of_npair,
    "triplet": of_triplet,
}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("contrastive", {"pairs": "halves"}),
        ("npair", {"pairs": "first"}),
        ("npair", {"pairs": "disjoint"}),
    ],
)
def test_pairs_that_only_a_batch_has_are_rejected(name, options, rng):
    x = rng.normal(size=(4, 3))
    labels = np.array([0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"`pairs` must be 'all'.*Received: pairs="):
        against(losses.get(name, **options), x, labels, x + 1, labels, np.full(4, -1))
