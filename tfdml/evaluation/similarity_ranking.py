"""Ranks by a learned similarity: exact, in tiles of bounded size, each pair of rows scored once."""

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs

_TILE_ROWS = 256  # 128 to 512 took the same time with PDDM; scores of a tile fill half a megabyte
_ASYMMETRY = 1e-2  # of the largest score: above the rounding of bfloat16


def similarity_ranks(embeddings, labels, gallery_embeddings, gallery_labels, most, similarity):
    """Counts, per query, the rows of other classes that score no less than its best mate.

    Without a gallery the score of a pair serves both of its rows. Tiles lie on and above the
    diagonal, so n rows take about n * (n + 256) / 2 scores; those below the diagonal of a tile on
    it are only compared with those above. Besides a tile, memory holds `most` + 1 scores per query.

    Args:
        embeddings: (n, dim) floats, the queries.
        labels: (n,) integers.
        gallery_embeddings: (m, dim) floats, or None where the queries search among themselves.
        gallery_labels: (m,) integers, or None.
        most: Counts beyond this number are not told apart.
        similarity: As for `recall_at_k`; gets views of the rows given, at most 256 of each.

    Returns:
        (n,) floats: the count, at most `most`; infinity for a query without a mate. A warning says
        where all scores are equal, as those of a layer whose units died in training.

    Raises:
        ValueError: If scores have a wrong shape, are not finite, or without a gallery differ from
            their mirror image by more than 1 % of the largest.

    Source:
        Huang, Loy, Tang. Local similarity-aware deep feature embedding. NIPS 2016, section 4:
        the rows "LMDM score" and "PDDM score" of Table 1.
    """
    if gallery_labels is None:
        best = _Best(labels, labels, most)
        for rows, columns in _tiles_of_pairs(len(labels)):
            scores = _scores(similarity, embeddings[rows], embeddings[columns])
            if rows == columns:
                best.add(rows, columns, _one_score_per_pair(scores))
            else:
                best.add(rows, columns, scores)
                best.add(columns, rows, scores.T)
    else:
        best = _Best(labels, gallery_labels, most)
        for rows in _slices(0, len(labels)):
            for columns in _slices(0, len(gallery_labels)):
                scores = _scores(similarity, embeddings[rows], gallery_embeddings[columns])
                best.add(rows, columns, scores)
    return best.ranks()


def scores_to_rank(count):
    """How many scores `similarity_ranks` asks for, to rank `count` rows among themselves."""
    return sum(
        (rows.stop - rows.start) * (columns.stop - columns.start)
        for rows, columns in _tiles_of_pairs(count)
    )


class _Best:
    """Of every query the score of its best mate and the `most` best scores of other classes."""

    def __init__(self, labels, gallery_labels, most):
        self.labels = labels
        self.gallery_labels = gallery_labels
        self.mate = np.full(len(labels), -np.inf)
        self.others = np.full((len(labels), most), -np.inf)

    def add(self, rows, columns, scores):
        """Takes in the scores of the queries `rows` and the gallery's `columns`, two slices."""
        mates = self.labels[rows, None] == self.gallery_labels[columns]
        nearest = np.where(mates, scores, -np.inf).max(axis=1)
        self.mate[rows] = np.maximum(self.mate[rows], nearest)
        others = np.concatenate([self.others[rows], np.where(mates, -np.inf, scores)], axis=1)
        most = self.others.shape[1]
        self.others[rows] = np.partition(others, -most, axis=1)[:, -most:]

    def ranks(self):
        best = np.concatenate([self.mate, self.others.max(axis=1, initial=-np.inf)])
        inputs.warn_if_equal(best, stacklevel=4)
        before = np.count_nonzero(self.others >= self.mate[:, None], axis=1)
        return np.where(self.mate == -np.inf, np.inf, before)


def _tiles_of_pairs(count):
    """Slices of rows and columns that cover every pair of rows on or above the diagonal."""
    for rows in _slices(0, count):
        for columns in _slices(rows.start, count):
            yield rows, columns


def _slices(start, count):
    return [slice(i, min(i + _TILE_ROWS, count)) for i in range(start, count, _TILE_ROWS)]


def _scores(similarity, a, b):
    return inputs.scores_of(similarity, a, b, (len(a), len(b)))


def _one_score_per_pair(scores):
    """The scores above the diagonal and their mirror image; a row is no neighbour of itself."""
    difference = np.abs(scores - scores.T).max()
    check(
        difference <= _ASYMMETRY * np.abs(scores).max(),
        "`similarity` must be symmetric",
        largest_difference=float(difference),
    )
    scores = np.triu(scores, 1)
    scores += scores.T
    np.fill_diagonal(scores, -np.inf)
    return scores
