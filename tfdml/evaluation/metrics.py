"""Retrieval metrics: readings of a `Ranking`, one value in [0, 1] per query."""

from typing import NamedTuple

import numpy as np

from tfdml.checks import check, unknown_name
from tfdml.evaluation import inputs

_SAME_AS_RECALL = ("precision@1", "ndcg@1")  # equal to recall@1
METRICS = ("recall", "precision", "map", "map@r", "r_precision", "mrr", "ndcg")
_AT_K = {"recall", "precision", "ndcg"}


def read(ranking, name, k=0):
    """(n,) values of a metric in [0, 1], one per query: a sum over its relevant rows."""
    (query, place, rank), relevant = ranking.relevant_ranks, np.maximum(ranking.relevant, 1)
    if name == "recall":
        gains, most = (place == 1) & (rank <= k), 1
    elif name == "precision":
        gains, most = rank <= k, k
    elif name == "ndcg":
        # Both sums run in the order of ranks, so that a perfect query gets exactly 1.
        ideal = np.cumsum(1 / np.log2(np.arange(2, k + 2)))
        gains, most = (rank <= k) / np.log2(rank + 1.0), ideal[np.minimum(relevant, k) - 1]
    elif name == "mrr":
        gains, most = (place == 1) / rank, 1
    elif name == "map":
        gains, most = place / rank, relevant
    elif name == "map@r":
        gains, most = (rank <= relevant[query]) * place / rank, relevant
    else:
        gains, most = rank <= relevant[query], relevant
    return np.bincount(query, gains.astype(np.float64), minlength=len(relevant)) / most


class Metrics(NamedTuple):
    """Metrics and the numbers K of "recall@K", "precision@K" and "ndcg@K"."""

    names: list
    counts: list

    @classmethod
    def of(cls, metrics, k, gallery_size):
        """Checks `metrics`, a name or several or None for all, and `k` if one of them needs it."""
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
        values = {}
        for name in self.names:
            if name in _AT_K:
                values |= {f"{name}@{count}": read(ranking, name, count) for count in self.counts}
            else:
                values[name] = read(ranking, name)
        return values


def without_twins(scores):
    """Drops metrics that equal recall@1 by definition."""
    return {name: value for name, value in scores.items() if name not in _SAME_AS_RECALL}


def named_recalls(recalls):
    """{1: value, ...} -> {"recall@1": value, ...}."""
    return {f"recall@{k}": recall for k, recall in recalls.items()}
