"""Retrieval scores: what a query finds among its nearest neighbours."""

import bisect
import warnings
from typing import NamedTuple

import numpy as np

from tfdml.evaluation import inputs
from tfdml.evaluation.similarity_ranking import similarity_ranks

_BLOCK_BYTES = 2**25  # of float32 scores held at once
_CHUNK_ROWS = 256  # exact distances computed before looking whether they suffice
_CENTRE_ROWS = 1001  # odd: the median of equal rows is then that row


def recall_at_k(
    embeddings,
    labels,
    k=(1, 2, 4, 8),
    *,
    gallery_embeddings=None,
    gallery_labels=None,
    similarity=None,
):
    """Tells how often a row of the query's class is among its K nearest rows.

    With D[q, j] the Euclidean distance of query q to gallery row j:

        nearest[q] = min of D[q, j] over j of the class of q, j != q
        rank[q]    = number of j of other classes with D[q, j] <= nearest[q]
        recall@K   = share of queries with rank[q] < K

    This is the "Recall@K" of metric-learning papers (any hit counts, also called CMC@K), not the
    share of relevant rows found. Ties never help: a row of another class at exactly the distance of
    the nearest same-class row ranks before it, so collapsed embeddings score 0 (unless no K rows
    of other classes exist). Exact: equal to comparing float64 distances of every pair. Cost is one
    float32 product of queries and gallery, in blocks; for n x dim inputs it takes about
    16 * n * dim bytes on top of the blocks.

    With `similarity` its scores S[q, j] take the place of -D[q, j], and the same definition holds;
    `tfdml.evaluation.similarity_ranking` says how often it is called and with what.

    Args:
        embeddings: (n, dim) floats, finite; the queries, taken as given: not normalised.
        labels: (n,) or (n, 1) integers of any size, one class id per query.
        k: Positive integer or several, at most the gallery size. The query itself is not counted:
            without a gallery the most is n - 1.
        gallery_embeddings: (m, dim) floats searched in. Default: the queries, of which each one
            leaves out itself, by index; duplicates of it stay.
        gallery_labels: (m,) or (m, 1) integers; given exactly when `gallery_embeddings` are.
        similarity: Callable of rows (i, dim) and (j, dim), i and j at most 256, that returns their
            (i, j) scores: finite, the larger the nearer, and without a gallery symmetric. An
            example is `PDDM.matrix`; wrapped in `tf.function` it takes a third of the time.
            Default: the Euclidean distance.

    Returns:
        {K: recall} with Python floats in [0, 1], K ascending. A query without another row of its
        class is a miss for every K; a warning says how many there are.

    Raises:
        TypeError: If labels are not integers, embeddings not floats or `similarity` no callable.
        ValueError: If shapes disagree, an input is empty or not finite, only half a gallery is
            given, or `k` is not positive or exceeds the gallery size; or if the scores of
            `similarity` have a wrong shape, are not finite, or not symmetric without a gallery.

    Source:
        Jegou, Douze, Schmid. Product quantization for nearest neighbor search. PAMI 2011, sec. V;
        Song, Xiang, Jegelka, Savarese. Deep metric learning via lifted structured feature
        embedding. CVPR 2016, sec. 6.
        Differs: ties count against the query instead of falling as the sort leaves them.

    Example:
        >>> import numpy as np
        >>> line = np.array([[0.0], [1.0], [3.0], [3.5]])
        >>> recall_at_k(line, np.array([0, 1, 0, 1]), k=(1, 2, 3))
        {1: 0.0, 2: 0.5, 3: 1.0}
    """
    inputs.check_similarity(similarity)
    embeddings, labels, gallery_embeddings, gallery_labels = inputs.queries_and_gallery(
        embeddings, labels, gallery_embeddings, gallery_labels
    )
    among_themselves = gallery_labels is None
    counts = inputs.neighbour_counts(
        k, len(labels) - 1 if among_themselves else len(gallery_labels)
    )
    if similarity is not None:
        ranks = similarity_ranks(
            embeddings, labels, gallery_embeddings, gallery_labels, counts[-1], similarity
        )
    elif among_themselves:
        ranks = _ranks_among_themselves(embeddings, labels, counts)
    else:
        ranks = _ranks_in_gallery(embeddings, labels, gallery_embeddings, gallery_labels, counts)
    return recalls(ranks, counts)


def recalls(ranks, counts):
    """{K: share of ranks below K}, with a warning for the queries that have no mate.

    Args:
        ranks: (n,) floats, the number of rows before the best mate; infinite without a mate.
        counts: The numbers K.
    """
    lonely = int(np.count_nonzero(ranks == np.inf))
    if lonely:
        warnings.warn(
            f"{lonely} of {len(ranks)} queries have no other row of their class to find "
            "and count as misses",
            stacklevel=3,
        )
    return {count: float(np.mean(ranks < count)) for count in counts}


def _ranks_among_themselves(embeddings, labels, counts):
    by_class = np.argsort(labels, kind="stable")
    labels = labels[by_class]
    rows = _points(embeddings[by_class])
    classes = _class_ranges(labels, labels)
    return _ranks(rows, rows, classes, np.arange(len(labels)), counts)


def _ranks_in_gallery(embeddings, labels, gallery_embeddings, gallery_labels, counts):
    by_class = np.argsort(gallery_labels, kind="stable")
    both = _points(np.concatenate([gallery_embeddings[by_class], embeddings]))
    gallery, queries = both.split(len(gallery_labels))
    classes = _class_ranges(labels, gallery_labels[by_class])
    return _ranks(queries, gallery, classes, np.full(len(labels), -1), counts)


def _class_ranges(labels, sorted_labels):
    """The (start, stop) of each label's class in the sorted gallery: empty if it has none."""
    starts = np.searchsorted(sorted_labels, labels, side="left")
    return starts, np.searchsorted(sorted_labels, labels, side="right")


class _Points(NamedTuple):
    """The same rows twice: as given for exact distances, moved and rounded for fast ones."""

    exact: np.ndarray  # (n, dim) float64, times a power of two
    centred: np.ndarray  # (n, dim) float32, of the same scale, about the middle of the gallery
    squared_norms: np.ndarray  # (n,) float64, of the centred rows before rounding

    def split(self, count):
        head, tail = zip(*((part[:count], part[count:]) for part in self), strict=True)
        return _Points(*head), _Points(*tail)


def _points(embeddings):
    # Powers of two change no comparison, but keep squares of huge and tiny numbers in range.
    exact = embeddings.astype(np.float64)
    exact *= _scale(exact)
    # Rounding errors grow with the norms, so rows that lie far off and close together need a centre
    # of their own. A median, since a mean would follow one far row away from all the others.
    sample = exact[:: max(1, len(exact) // _CENTRE_ROWS)][:_CENTRE_ROWS]
    sample = sample[: len(sample) - (len(sample) + 1) % 2]
    centred = exact - np.median(sample, axis=0)
    scale = _scale(centred)
    exact *= scale
    centred *= scale
    squared_norms = np.einsum("ij,ij->i", centred, centred)
    return _Points(exact, centred.astype(np.float32), squared_norms)


def _scale(values):
    """The power of two that brings the largest magnitude to about 1."""
    largest = max(values.max(), -values.min())
    exponent = int(np.frexp(largest)[1])
    return 2.0 ** -min(max(exponent, -1000), 1000)


def _ranks(queries, gallery, classes, own, counts):
    """Per query a rank that decides every K of `counts`; infinity where no mate exists.

    `classes` are the starts and stops of the queries' classes in the gallery, `own` the gallery
    row of each query itself, or -1.
    """
    # A score is a.b - b.b/2 = (a.a - D**2) / 2, one product once b carries its last term.
    halves = (-0.5 * gallery.squared_norms[:, None]).astype(np.float32)
    columns = np.concatenate([gallery.centred, halves], axis=1).T
    ones = np.ones((len(queries.exact), 1), np.float32)
    rows = np.concatenate([queries.centred, ones], axis=1)
    search = _Search(gallery.exact, counts)
    ranks = np.empty(len(rows))
    block = max(1, _BLOCK_BYTES // (4 * columns.shape[1]))
    scores = np.empty((min(block, len(rows)), columns.shape[1]), np.float32)
    for first in range(0, len(rows), block):
        last = min(first + block, len(rows))
        np.matmul(rows[first:last], columns, out=scores[: last - first])
        for i in range(first, last):
            ranks[i] = search.rank(
                scores[i - first],
                queries.exact[i],
                float(queries.squared_norms[i]),
                (int(classes[0][i]), int(classes[1][i])),
                int(own[i]),
            )
    return ranks


class _Search:
    """Ranks one query at a time: float32 scores where they are certain, float64 where not."""

    def __init__(self, rows, counts):
        self.rows = rows
        self.counts = counts
        # Rounding both factors, the products and their sum in any order: dim + 4 roundings, each
        # at most 2**-24 of |a||b| + b.b/2. The rest covers the threshold's own rounding.
        self.rounding = (rows.shape[1] + 8) * 2.0**-24

    def rank(self, scores, query, squared_norm, mates, own):
        """The rank of the nearest mate, or any rank on the same side of every K.

        Overwrites the scores of the mates, which are gallery rows start to stop.
        """
        start, stop = mates
        if own >= 0:
            scores[own] = -np.inf
        if stop - start - (own >= 0) == 0:
            return np.inf
        nearest = self._nearest(scores[start:stop], query, squared_norm, start)
        scores[start:stop] = -np.inf
        low, high = self._doubtful(squared_norm, nearest)
        at_most = np.count_nonzero(scores >= low)
        if at_most == 0:
            return 0
        at_least = np.count_nonzero(scores > high)
        if bisect.bisect(self.counts, at_least) == bisect.bisect(self.counts, at_most):
            return at_least
        doubtful = np.flatnonzero((scores >= low) & (scores <= high))
        return at_least + self._count_nearer(doubtful, query, nearest, self.counts[-1] - at_least)

    def _nearest(self, scores, query, squared_norm, start):
        """The squared distance of the nearest mate, in float64."""
        best = start + int(scores.argmax())
        nearest = float(_squared_distances(self.rows[best : best + 1], query)[0])
        low, _ = self._doubtful(squared_norm, nearest)
        candidates = start + np.flatnonzero(scores >= low)
        if len(candidates) == 1:
            return nearest
        for first in range(0, len(candidates), _CHUNK_ROWS):
            if nearest == 0:
                break
            rows = self.rows[candidates[first : first + _CHUNK_ROWS]]
            nearest = min(nearest, float(_squared_distances(rows, query).min()))
        return nearest

    def _count_nearer(self, candidates, query, nearest, enough):
        """How many candidates are at or nearer than `nearest`; stops counting at `enough`."""
        count = 0
        for first in range(0, len(candidates), _CHUNK_ROWS):
            rows = self.rows[candidates[first : first + _CHUNK_ROWS]]
            count += int(np.count_nonzero(_squared_distances(rows, query) <= nearest))
            if count >= enough:
                break
        return count

    def _doubtful(self, squared_norm, squared_distance):
        """The scores between which a row may lie on either side of `squared_distance`.

        Rows of norm above `reach` are farther than that distance by the triangle inequality, and
        by more than their larger rounding error; all others have at most `error`.
        """
        norm = squared_norm**0.5
        reach = norm * (1 + 4 * self.rounding) + squared_distance**0.5
        # The last term stands for products too small for a float32.
        error = self.rounding * (norm * reach + reach * reach / 2 + 2.0**-100)
        score = (squared_norm - squared_distance) / 2
        return score - error, score + error


def _squared_distances(rows, query):
    return np.square(rows - query).sum(axis=1)
