"""Pair objectives whose positives and negatives are among other rows."""

import dataclasses

import numpy as np
import pytest
from backend import DOUBLE, value_and_gradient
from cases import PATHS
from keras import ops

from tfdml import losses, pairwise
from tfdml.losses import Batch, PairLoss, References

LABELS = np.array([0, 0, 1, 1, 2, 2, 2, 3])
OF_PAIRS = [
    name for name, found in losses.LOSSES.items() if issubclass(getattr(losses, found), PairLoss)
]
CASES = [
    *((name, options) for name, options in PATHS if name in OF_PAIRS and "pairs" not in options),
    ("contrastive", {"average_over": "batch", "squared": False}),
    ("contrastive", {"average_over": "sum"}),
    ("lifted", {"variant": "sum"}),
    ("npair", {}),
    ("multi_similarity", {"epsilon": None}),
]
every_case = pytest.mark.parametrize(("name", "options"), CASES)


def against(loss, anchors, labels, references, reference_labels, positions):
    own, others = (
        loss.scaled(Batch(*map(ops.convert_to_tensor, pair)))
        for pair in ((labels, anchors), (reference_labels, references))
    )
    others = References(others.labels, others.embeddings, ops.convert_to_tensor(positions))
    return loss.call(dataclasses.replace(own, others=others))


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
