"""Retrieval metrics computed from the ranks of relevant rows."""

from typing import NamedTuple

import numpy as np

from tfdml.checks import check, unknown_name
from tfdml.evaluation import inputs

_AT_K = ("recall", "precision", "ndcg")
METRICS = ("recall", "precision", "map", "map@r", "r_precision", "mrr", "ndcg")


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
        at_k = set(_AT_K).intersection(names)
        return cls(names, inputs.neighbour_counts(k, gallery_size) if at_k else [])

    @property
    def only_nearest(self):
        """Whether the metrics need only the rank of the nearest relevant row."""
        return {"recall", "mrr"}.issuperset(self.names)

    def depth(self, relevant):
        """(n,) floats: the largest rank that is needed for each query, by its relevant rows."""
        most = np.inf if {"map", "mrr"}.intersection(self.names) else max(self.counts, default=0)
        of_all = {"map@r", "r_precision"}.intersection(self.names)
        return np.maximum(float(most), relevant if of_all else np.zeros(len(relevant)))

    def values(self, ranks, relevant):
        """{name: (b,) floats in [0, 1]}, one per query.

        Args:
            ranks: `RelevantRanks` of b queries, complete up to `depth`.
            relevant: (b,) numbers of relevant rows.
        """
        place, rank, most = ranks.place, ranks.rank, np.maximum(relevant, 1)
        among_r = rank <= relevant[ranks.query]

        def total(weights):
            """(b,) sums of the weights of each query's relevant rows, in order of their ranks."""
            weights = np.asarray(weights, np.float64)
            return np.bincount(ranks.query, weights, minlength=len(relevant))

        def ndcg(count):
            # Both sums run in the order of ranks, so that a perfect query gets exactly 1.
            ideal = np.cumsum(1 / np.log2(np.arange(2, count + 2)))
            return total((rank <= count) / np.log2(rank + 1)) / ideal[np.minimum(most, count) - 1]

        of_queries = {
            "recall": lambda count: total((place == 1) & (rank <= count)),
            "precision": lambda count: total(rank <= count) / count,
            "ndcg": ndcg,
            "map": lambda _: total(place / rank) / most,
            "map@r": lambda _: total(among_r * place / rank) / most,
            "r_precision": lambda _: total(among_r) / most,
            "mrr": lambda _: total((place == 1) / rank),
        }
        values = {}
        for name in self.names:
            for count in self.counts if name in _AT_K else [None]:
                values[f"{name}@{count}" if count else name] = of_queries[name](count)
        return values
