"""Retrieval metrics: readings of a `Ranking`, one value in [0, 1] per query."""

from typing import NamedTuple

import numpy as np

from tfdml.checks import check, unknown_name
from tfdml.evaluation import inputs

_SAME_AS_RECALL = ("precision@1", "ndcg@1")  # equal to recall@1


def recall(ranking, k):
    """1 if the nearest relevant row is among the K nearest rows."""
    ranks, found = ranking.relevant_ranks, np.zeros(len(ranking.relevant))
    found[ranks.query[(ranks.rank <= k) & (ranks.place == 1)]] = 1
    return found


def precision(ranking, k):
    """Share of the K nearest rows that are relevant."""
    return _totals(ranking, ranking.relevant_ranks.rank <= k) / k


def ndcg(ranking, k):
    """Discounted cumulative gain of the K nearest rows, divided by its largest value."""
    rank, most = ranking.relevant_ranks.rank, np.clip(ranking.relevant, 1, k)
    # Both sums run in the order of ranks, so that a perfect query gets exactly 1.
    ideal = np.cumsum(1 / np.log2(np.arange(2, k + 2)))
    return _totals(ranking, (rank <= k) / np.log2(rank + 1.0)) / ideal[most - 1]


def average_precision(ranking):
    """Mean of place / rank over the relevant rows."""
    ranks = ranking.relevant_ranks
    return _totals(ranking, ranks.place / ranks.rank) / np.maximum(ranking.relevant, 1)


def average_precision_at_r(ranking):
    """As `average_precision`, counting only ranks up to the number R of relevant rows."""
    ranks = ranking.relevant_ranks
    among_r = ranks.rank <= ranking.relevant[ranks.query]
    return _totals(ranking, among_r * ranks.place / ranks.rank) / np.maximum(ranking.relevant, 1)


def r_precision(ranking):
    """Share of the R nearest rows that are relevant."""
    ranks = ranking.relevant_ranks
    among_r = ranks.rank <= ranking.relevant[ranks.query]
    return _totals(ranking, among_r) / np.maximum(ranking.relevant, 1)


def reciprocal_rank(ranking):
    """1 / rank of the nearest relevant row."""
    ranks = ranking.relevant_ranks
    return _totals(ranking, (ranks.place == 1) / ranks.rank)


METRICS = {
    "recall": recall,
    "precision": precision,
    "map": average_precision,
    "map@r": average_precision_at_r,
    "r_precision": r_precision,
    "mrr": reciprocal_rank,
    "ndcg": ndcg,
}
_AT_K = {"recall", "precision", "ndcg"}


class Metrics(NamedTuple):
    """Metrics and the numbers K of "recall@K", "precision@K" and "ndcg@K"."""

    names: list
    counts: list

    @classmethod
    def of(cls, metrics, k, gallery_size):
        """Checks `metrics`, one name or several or None for all, and `k` if one of them needs it.

        Raises:
            ValueError: If there is no name, one that is not in `METRICS`, or `k` is out of range.
        """
        names = METRICS if metrics is None else [metrics] if isinstance(metrics, str) else metrics
        names = list(dict.fromkeys(names))
        check(names, "`metrics` must not be empty", metrics=metrics)
        for name in names:
            if name not in METRICS:
                raise ValueError(unknown_name("metric", name, METRICS))
        counts = inputs.neighbour_counts(k, gallery_size) if _AT_K.intersection(names) else []
        return cls(names, counts)

    @property
    def first_only(self):
        """Whether the metrics need only the rank of the nearest relevant row."""
        return {"recall", "mrr"}.issuperset(self.names)

    def depth(self, relevant):
        """(n,) floats: the largest rank that is needed for each query, by its relevant rows."""
        most = np.inf if {"map", "mrr"}.intersection(self.names) else max(self.counts, default=0)
        every = {"map@r", "r_precision"}.intersection(self.names)
        return np.maximum(float(most), relevant if every else np.zeros(len(relevant)))

    def values(self, ranking):
        """{name: (n,) float64}, one per query of a `Ranking` that is complete up to `depth`."""
        return dict(self.read(ranking))

    def read(self, ranking):
        """Yields the names and values of `values`, one after the other."""
        for name in self.names:
            if name in _AT_K:
                for count in self.counts:
                    yield f"{name}@{count}", METRICS[name](ranking, count)
            else:
                yield name, METRICS[name](ranking)


def without_twins(scores):
    """Drops metrics that equal recall@1 by definition."""
    return {name: value for name, value in scores.items() if name not in _SAME_AS_RECALL}


def named_recalls(recalls):
    """{1: value, ...} -> {"recall@1": value, ...}."""
    return {f"recall@{k}": recall for k, recall in recalls.items()}


def _totals(ranking, weights):
    """(n,) sums of the weights of each query's relevant rows, in order of their ranks."""
    query, weights = ranking.relevant_ranks.query, np.asarray(weights, np.float64)
    return np.bincount(query, weights, minlength=len(ranking.relevant))
