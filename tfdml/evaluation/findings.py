"""What is wrong with labelled images, as their embeddings show it."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.decomposition import PCA

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.nearest_mean import class_means, rows_by_class
from tfdml.evaluation.postprocessing import within_class_whitening
from tfdml.evaluation.ranking import rank
from tfdml.evaluation.tiles import slices_of

FINDINGS = ("leak", "duplicate", "label", "outlier", "merge", "split", "size")
NEAREST = 10  # rows of each; the farther half is the scale of its distances
_ALIKE = 0.75  # of the scale of both rows, below which a distance is that of near-duplicates
_DIMS = 64  # of the principal components in which classes are compared
_BLOCK = 2**24  # distances to class means at once
_SAMPLE = 4000  # rows that determine the temperature
_FAR = 6.0  # robust standard deviations beyond which a row is far from all others
_SURE = 0.95  # of a label that is wrong
_ONE, _TWO = 0.7, 0.6  # scores from which two classes are one, and a class is two
_FEWEST = 8  # rows of a class that may be two, or one with another
_SMALL, _LARGE = 3, 10  # fewest rows of a class, and most medians of the sizes


class Finding(NamedTuple):
    """A fault, of a row or of a class that a row stands for."""

    finding: str  # one of `FINDINGS`
    row: int
    other: int  # the row beside it; -1 for none
    score: float  # in [0, 1], 1 for the surest
    label: int  # the class that the row should have, or its class; of a merge the other class


def audit(embeddings, labels, *, groups=None, ranking=None):
    """Finds faults of labelled rows: a list of `Finding`, the surest first within each kind.

    With D the Euclidean distance and s_i the mean D of row i to its 6th to 10th nearest rows:

        duplicate  score 1 - D(i, j) / sqrt(s_i s_j) >= 0.25, 1 for equal rows: the same picture,
                   encoded anew, mirrored or cut a little; the later row is that to leave out
        leak       the same, of rows of two groups; the row of the lower group is that to leave out
        label      score P(c) / (P(c) + P(y)) >= 0.95 of the given class y and the most probable
                   other c
        outlier    s_i is 6 robust standard deviations above its median: score 1 - median / s_i
        merge      two classes that are one: the share of rows of a nearer to the mean of b, and of
                   b nearer to that of a, add up to a score >= 0.7, 1 for halves of one class
        split      a class that is two: score >= 0.6, 1 - the share of nearest rows in the other of
                   two clusters, over that at random
        size       fewer than 3 rows, or over 10 times the median of the classes

    P is the softmax of -squared distance / temperature to class means, in 64 principal components
    where the covariance within the classes, shrunk as Ledoit and Wolf do, is the identity. A row is
    left out of the mean of its class, distances are those expected of exact means, and the
    temperature has the highest likelihood.

    Args:
        embeddings: (n, dim) floats, finite, of 3 rows or more.
        labels: (n,) or (n, 1) integers, class ids.
        groups: (n,) integers, such as 0 for training and 1 for test images; one group if None.
        ranking: `Ranking` of the rows with 10 nearest, or as many as there are; found if None.

    Raises:
        TypeError, ValueError: If an argument is not such.

    Source:
        Friedman. Regularized discriminant analysis. JASA 1989; Northcutt, Jiang, Chuang. Confident
        learning. JAIR 2021 (label).
        Differs: Northcutt et al. estimate P in folds, and thresholds for each class.
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    count = len(labels)
    check(count > 2, "an audit needs 3 rows or more", rows=count)
    groups = np.zeros(count, int) if groups is None else inputs.class_ids(groups, "groups")
    inputs.check_alike("batch size", groups=groups, labels=labels)
    ids, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    ranking = ranking or rank(embeddings, labels, nearest=min(NEAREST, count - 1), depth=0)
    found = [*_neighbour_findings(ranking, labels, groups), *_size_findings(ids, classes, sizes)]
    if len(ids) > 1 and sizes.max() > 1:
        rows, means = _whitened(embeddings, classes)
        found += _class_findings(rows, means, ids, classes, sizes)
    return sorted(found, key=lambda each: (FINDINGS.index(each.finding), -each.score, each.row))


def _neighbour_findings(found, labels, groups):
    """Findings of the distances of the nearest rows."""
    scale = found.distances[:, found.nearest.shape[1] // 2 :].mean(axis=1)
    scales = np.sqrt(scale[:, None] * scale[found.nearest])
    median = np.median(scale)
    far = median + _FAR * 1.4826 * np.median(np.abs(scale - median))
    for row in np.flatnonzero(scale > far):
        yield Finding("outlier", int(row), -1, float(1 - median / scale[row]), int(labels[row]))
    ratio = np.where(found.distances > 0, np.inf, 0.0)  # beside rows with ten copies
    np.divide(found.distances, scales, out=ratio, where=scales > 0)
    rows, places = np.nonzero(ratio <= _ALIKE)
    others = found.nearest[rows, places]
    scores = 1 - ratio[rows, places]
    once = (rows < others) | ~(found.nearest[others] == rows[:, None]).any(axis=1)
    for row, other, score in zip(rows[once], others[once], scores[once], strict=True):
        left, kept = sorted((row, other), key=lambda each: (groups[each], -each))
        kind = "duplicate" if groups[row] == groups[other] else "leak"
        yield Finding(kind, int(left), int(kept), float(score), int(labels[kept]))


def _size_findings(ids, classes, sizes):
    first = np.unique(classes, return_index=True)[1]
    median = np.median(sizes)
    for row, label, size in zip(first.tolist(), ids.tolist(), sizes.tolist(), strict=True):
        if size < _SMALL or size > _LARGE * median:
            score = 1 - min(size / median, median / size)
            yield Finding("size", row, -1, float(score), label)


def _whitened(embeddings, classes):
    """Rows and means of their classes where the covariance within the classes is the identity."""
    rows = embeddings.astype(np.float32)
    rows /= np.abs(rows).max() or 1.0
    if min(rows.shape) > _DIMS:
        rows = PCA(_DIMS, random_state=0).fit_transform(rows)
    _, means = class_means(rows, classes)
    whitening = within_class_whitening(rows - means[classes])
    return rows @ whitening, means @ whitening


def _class_findings(rows, means, ids, classes, sizes):
    """Findings that compare rows with the means of classes."""
    scores, place, nearer = _compared(rows, means, classes, sizes)
    by_class = rows_by_class(classes)[1]
    for row in np.flatnonzero(scores >= _SURE):
        beside = _nearest(rows, by_class[place[row]], rows[row])
        yield Finding("label", int(row), beside, float(scores[row]), int(ids[place[row]]))
    enough = sizes >= _FEWEST
    one = np.triu(nearer + nearer.T, 1) * (enough[:, None] & enough)
    for a, b in np.argwhere(one >= _ONE):
        pair = _nearest(rows, by_class[a], means[b]), _nearest(rows, by_class[b], means[a])
        yield Finding("merge", *pair, float(min(1.0, one[a, b])), int(ids[b]))
    for number in np.flatnonzero(enough):
        part = by_class[number]
        score, sides = _two_clusters(rows[part])
        if score >= _TWO:
            one, two = (
                _nearest(rows, each, rows[each].mean(axis=0))
                for each in (part[sides], part[~sides])
            )
            yield Finding("split", one, two, score, int(ids[number]))


def _nearest(rows, chosen, place):
    return int(chosen[np.argmin(np.square(rows[chosen] - place).sum(axis=1))])


def _compared(rows, means, classes, sizes):
    """Rows beside the means of classes, their own without the row.

    (n,) P(c) / (P(c) + P(y)) of `audit` and (n,) numbers of these c; (classes, classes) shares of
    the rows of one to which the mean of another is nearer.
    """

    def squared_of(block):
        """Squared distances to all means, less what a mean of few rows adds to them."""
        squared = np.square(means).sum(axis=1) - 2 * rows[block] @ means.T
        squared += np.square(rows[block]).sum(axis=1)[:, None]
        own, others = (np.arange(len(squared)), classes[block]), np.maximum(sizes - 1, 1)
        left_out = squared[own] * np.square(sizes / others)[classes[block]]
        squared -= means.shape[1] / sizes
        squared[own] = left_out - (means.shape[1] / others)[classes[block]]
        return squared.astype(np.float32)  # which are exponentiated faster

    drawn = np.random.default_rng(0).permutation(np.flatnonzero(sizes[classes] > 1))[:_SAMPLE]
    some = squared_of(drawn)
    given = some[np.arange(len(drawn)), classes[drawn]]

    def loss(exponent):
        temperature = np.exp(exponent)
        shares, lowest = _relative(some, temperature)
        return np.mean((given - lowest) / temperature + np.log(shares.sum(axis=1)))

    temperature = np.exp(minimize_scalar(loss, bounds=(0, 7), method="bounded").x)
    scores, place = np.empty(len(rows)), np.empty(len(rows), int)
    nearer = np.zeros((len(means),) * 2, np.float32)
    order = np.argsort(classes, kind="stable")
    for block in slices_of(0, len(rows), max(1, _BLOCK // len(means))):
        block = order[block]
        squared, own = squared_of(block), classes[block]
        numbers, starts = np.arange(len(block)), np.flatnonzero(np.diff(own, prepend=-1))
        beyond = squared < squared[numbers, own][:, None]
        nearer[own[starts]] += np.add.reduceat(beyond, starts, dtype=np.float32)
        shares, _ = _relative(squared, temperature)
        given = shares[numbers, own].astype(np.float64)
        shares[numbers, own] = 0
        place[block] = shares.argmax(axis=1)
        other = shares[numbers, place[block]]
        scores[block] = other / (other + given)
    return scores, place, nearer / sizes[:, None]


def _relative(squared, temperature):
    """Probabilities by squared distances over that of the lowest of each row, and the lowest."""
    lowest = squared.min(axis=1)
    return np.exp((lowest[:, None] - squared) / np.float32(temperature)), lowest


def _two_clusters(rows):
    """How far two clusters of rows are apart, at most 1, and the (n,) booleans of the second."""
    rows = rows - rows.mean(axis=0)
    sides = rows @ np.linalg.svd(rows, full_matrices=False)[2][0] > 0
    for _ in range(10):
        if sides.all() or not sides.any():
            return 0.0, sides
        first, second = rows[~sides].mean(axis=0), rows[sides].mean(axis=0)
        sides = (rows - (first + second) / 2) @ (second - first) > 0
    share = sides.mean()
    squared = np.square(rows).sum(axis=1)
    squared = squared[:, None] + squared - 2 * rows @ rows.T
    np.fill_diagonal(squared, np.inf)
    nearest = np.argpartition(squared, 5, axis=1)[:, :5]
    crossing = (sides[nearest] != sides[:, None]).mean()
    return float(1 - crossing / max(2 * share * (1 - share), 1e-9)), sides
