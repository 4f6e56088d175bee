"""Exact ranks of relevant rows by a learned similarity, in tiles; each pair is scored once."""

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.ranking.search import ranks_of, slices_of

_TILE_ROWS = 256  # 128 to 512 took the same time with PDDM; scores of a tile fill half a megabyte
_ASYMMETRY = 1e-2  # relative to the largest score: above the rounding of bfloat16


def ranks_by_similarity(search, similarity, only_nearest):
    """Ranks the relevant rows of each query among all gallery rows; ties count as errors.

    Without a separate gallery, the score of a pair serves both of its rows. Tiles lie on and above
    the diagonal, so n rows take about n * (n + 256) / 2 scores; in tiles on the diagonal, scores
    below it only serve to check symmetry. Rows are sorted by class, so that few tiles hold relevant
    rows; these are scored first, and all other scores are counted against them. Besides some tiles,
    this takes 16 bytes per pair of one class.

    Args:
        search: `Search`.
        similarity: As for `retrieval_scores`; gets views of the rows given, at most 256 of each.
        only_nearest: Whether the nearest relevant row suffices. Others are then left out.

    Yields:
        `RelevantRanks` of consecutive queries, once all scores are known. Warns if the best scores
        of all queries are equal, as with a layer of dead units.

    Raises:
        ValueError: If scores have a wrong shape, are not finite, or, without a separate gallery,
            differ from their mirror image by more than 1 % of the largest.

    Source:
        Huang, Loy, Tang. Local similarity-aware deep feature embedding. NIPS 2016, section 4:
        the rows "LMDM score" and "PDDM score" of Table 1.
    """
    table = _Table(search, only_nearest)
    _score_tiles(search, similarity, table)
    inputs.warn_if_equal(np.concatenate([table.best_relevant(), table.best_others]), stacklevel=5)
    for rows in slices_of(0, len(search.queries), _TILE_ROWS):
        yield table.ranks(rows)


def scores_to_rank(count):
    """Number of scores that a similarity computes to rank `count` rows among themselves."""
    return sum((tile.stop - tile.start) * tile.stop for tile in slices_of(0, count, _TILE_ROWS))


def _score_tiles(search, similarity, table):
    """Adds all scores to the table; of queries among themselves, each score for both its rows."""

    def scores_of(rows, columns):
        shape = rows.stop - rows.start, columns.stop - columns.start
        return inputs.scores_of(similarity, search.queries[rows], search.gallery[columns], shape)

    own, slices = search.among_themselves, slices_of(0, len(search.gallery), _TILE_ROWS)
    ahead = {}  # tiles with relevant rows, scored before their turn
    for i, asked in enumerate(slices_of(0, len(search.queries), _TILE_ROWS)):
        for columns in slices[i if own else 0 :]:
            shared = search.related(asked, columns)
            if shared.start < shared.stop:
                scores = scores_of(asked, columns)
                if own and asked == columns:
                    scores = _one_score_per_pair(scores)
                elif own:
                    table.add_relevant(columns, asked, scores.T)
                table.add_relevant(asked, columns, scores)
                ahead[asked.start, columns.start] = scores
        table.sort(asked)
        for other in slices[: i + 1] if own else slices:
            rows, columns = (other, asked) if own else (asked, other)
            scores = ahead.pop((rows.start, columns.start), None)
            scores = scores_of(rows, columns) if scores is None else scores
            table.add_others(rows, columns, scores)
            if own and rows != columns:
                table.add_others(columns, rows, scores.T)


class _Table:
    """Scores of each query's relevant rows and numbers of rows of other classes that reach them."""

    def __init__(self, search, only_nearest):
        self.search = search
        self.only_nearest = only_nearest
        sizes = np.ones(len(search.start), int) if only_nearest else search.stop - search.start
        edges = np.cumsum(sizes)
        self.begin = edges - sizes
        self.scores = np.full(edges[-1], -np.inf)  # of relevant rows; rows left out stay so
        self.relevant = np.split(self.scores, edges[:-1])  # of each query
        # Of each query, for i >= 0, how many others reach exactly its i worst relevant rows.
        self.reached = [np.zeros(size + 1, int) for size in sizes]
        self.best_others = np.full(len(sizes), -np.inf)

    def add_relevant(self, rows, columns, scores):
        """Adds scores of relevant rows: queries `rows`, gallery rows `columns`, both slices."""
        relevant = self.search.is_relevant(rows, columns)
        if self.only_nearest:
            best = np.where(relevant, scores, -np.inf).max(axis=1)
            self.scores[rows] = np.maximum(self.scores[rows], best)
        else:
            row = np.arange(columns.start, columns.stop)
            place = (self.begin - self.search.start)[rows, None] + row
            self.scores[place[relevant]] = scores[relevant]

    def sort(self, rows):
        """Sorts the scores of relevant rows of these queries, once all are added."""
        for known in self.relevant[rows]:
            known.sort()

    def add_others(self, rows, columns, scores):
        """Counts rows of other classes against the sorted relevant rows.

        Overwrites the scores of rows of the query's own class.
        """
        self.search.leave_out_classes(scores, rows, columns)
        self.best_others[rows] = np.maximum(self.best_others[rows], scores.max(axis=1))
        for i, of_query in enumerate(scores, start=rows.start):
            known, reached = self.relevant[i], self.reached[i]
            if known.size:
                places = np.searchsorted(known, of_query, side="right")
                reached += np.bincount(places, minlength=len(reached))

    def best_relevant(self):
        """(n,) floats: the score of each query's best relevant row; -inf if it has none."""
        return np.array([known[-1] if known.size else -np.inf for known in self.relevant])

    def ranks(self, rows):
        """The `RelevantRanks` of consecutive queries."""
        before = [
            np.cumsum(reached[::-1])[-2::-1][known > -np.inf]
            for known, reached in zip(self.relevant[rows], self.reached[rows], strict=True)
        ]
        query = np.repeat(np.arange(len(before)), [len(of) for of in before])
        return ranks_of(rows.start, rows.stop, query, np.concatenate(before))


def _one_score_per_pair(scores):
    """Mirrors the scores above the diagonal; the diagonal becomes -inf."""
    difference = np.abs(scores - scores.T).max()
    symmetric = difference <= _ASYMMETRY * np.abs(scores).max()
    check(symmetric, "`similarity` must be symmetric", largest_difference=float(difference))
    scores = np.triu(scores, 1)
    scores += scores.T
    np.fill_diagonal(scores, -np.inf)
    return scores
