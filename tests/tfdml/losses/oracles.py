"""Each loss of the table once more, as loops over examples in float64: the reference of its tests.

A function takes labels, embeddings and the options of its loss and follows the paper's formula
without a thought for speed.
"""

import math

import numpy as np


def unit(rows):
    return np.array([row / np.linalg.norm(row) if np.linalg.norm(row) > 0 else row for row in rows])


def distance(a, b, squared):
    value = float(np.sum((a - b) ** 2))
    return value if squared else math.sqrt(value)


def pairs_of(labels):
    n = len(labels)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    positive = [(i, j) for i, j in pairs if labels[i] == labels[j]]
    return positive, [(i, j) for i, j in pairs if labels[i] != labels[j]]


def average(losses, rows, over):
    if over == "sum":
        return sum(losses)
    if over == "batch":
        return sum(losses) / rows
    if over == "active":
        losses = [loss for loss in losses if loss > 0]
    return sum(losses) / max(len(losses), 1)


def contrastive(labels, x, margin=1.0, squared=True, average_over="pairs", normalize=True):
    x = unit(x) if normalize else x
    positive, negative = pairs_of(labels)
    losses = [distance(x[i], x[j], squared) for i, j in positive]
    losses += [max(0.0, margin - distance(x[i], x[j], squared)) for i, j in negative]
    return average(losses, len(labels), average_over)


def triplet(
    labels, x, margin=1.0, mining="all", squared=True, average_over="triplets", normalize=True
):
    x = unit(x) if normalize else x
    n = len(labels)
    losses = []
    for a in range(n):
        positives = [
            distance(x[a], x[p], squared) for p in range(n) if p != a and labels[p] == labels[a]
        ]
        negatives = [distance(x[a], x[k], squared) for k in range(n) if labels[k] != labels[a]]
        if not positives or not negatives:
            continue
        if mining == "all":
            mined = [(p, k) for p in positives for k in negatives]
        elif mining == "hard":
            mined = [(max(positives), min(negatives))]
        else:
            mined = [
                (p, min((k for k in negatives if k > p), default=max(negatives))) for p in positives
            ]
        losses += [max(0.0, p - k + margin) for p, k in mined]
    return average(losses, n, average_over)


def lifted(labels, x, margin=1.0, variant="smooth", normalize=False):
    x = unit(x) if normalize else x
    positive, negative = pairs_of(labels)
    near = {i: [] for i in range(len(labels))}
    for i, j in negative:
        near[i].append(margin - distance(x[i], x[j], False))
        near[j].append(margin - distance(x[i], x[j], False))
    total = 0.0
    for i, j in positive:
        if not near[i]:
            continue
        if variant == "smooth":
            push = math.log(sum(math.exp(value) for value in near[i] + near[j]))
        elif variant == "max":
            push = max(near[i] + near[j])
        else:
            push = max(near[i]) + max(near[j])
        total += max(0.0, push + distance(x[i], x[j], False)) ** 2
    return total / (2 * max(len(positive), 1))


def npair(labels, x, pairs="first", scale=1.0, l2=0.0, normalize=True):
    x = unit(x) if normalize else x
    members = {}
    for i, label in enumerate(labels):
        members.setdefault(int(label), []).append(i)
    tuples = []
    if pairs == "all":
        for i, label in enumerate(labels):
            others = [k for k, other in enumerate(labels) if other != label]
            tuples += [(i, j, others) for j in members[int(label)] if j != i]
    else:
        longest = max(len(rows) for rows in members.values())
        for start in [0] if pairs == "first" else range(0, longest, 2):
            group = {c: rows[start : start + 2] for c, rows in members.items()}
            group = {c: rows for c, rows in group.items() if len(rows) == 2}
            for c, (anchor, positive) in group.items():
                tuples.append((anchor, positive, [r[1] for o, r in group.items() if o != c]))
    losses, lengths = [], []
    for i, j, others in tuples:
        losses.append(
            math.log1p(sum(math.exp(scale * (x[i] @ x[k] - x[i] @ x[j])) for k in others))
        )
        lengths.append(x[i] @ x[i] + x[j] @ x[j])
    if not tuples:
        return 0.0
    return float(np.mean(losses) + l2 / 2 * np.mean(lengths))
