"""Retrieval metrics computed from the ranks of relevant rows."""

import numpy as np

from tfdml.checks import check, unknown_name

AT_K = ("recall", "precision", "ndcg")
METRICS = ("recall", "precision", "map", "map@r", "r_precision", "mrr", "ndcg")


def metric_names(metrics):
    """Returns `metrics`, one name or several or None for all, as a list without repeats.

    Raises:
        ValueError: If there is no name, or one that is not in `METRICS`.
    """
    names = METRICS if metrics is None else [metrics] if isinstance(metrics, str) else metrics
    names = list(dict.fromkeys(names))
    check(names, "`metrics` must not be empty", metrics=metrics)
    for name in names:
        if name not in METRICS:
            raise ValueError(unknown_name("metric", name, METRICS))
    return names


def need_only_nearest(metrics):
    """Whether the metrics need only the rank of the nearest relevant row."""
    return {"recall", "mrr"}.issuperset(metrics)


def depth_needed(metrics, counts, relevant):
    """(n,) floats: the largest rank that the metrics need for each query."""
    most = np.inf if {"map", "mrr"}.intersection(metrics) else max(counts, default=0)
    depth = np.full(len(relevant), float(most))
    return np.maximum(depth, relevant) if {"map@r", "r_precision"}.intersection(metrics) else depth


def metric_values(metrics, counts, ranks, relevant):
    """{name: (b,) floats in [0, 1]}, one per query, of the metrics at each of the counts K.

    Args:
        metrics: Names of `METRICS`.
        counts: The numbers K of "recall@K", "precision@K" and "ndcg@K".
        ranks: `RelevantRanks` of b queries, complete up to `depth_needed`.
        relevant: (b,) numbers of relevant rows.
    """
    place, rank, most = ranks.place, ranks.rank, np.maximum(relevant, 1)
    among_r = rank <= relevant[ranks.query]

    def total(weights):
        """(b,) sums of the weights of each query's relevant rows, in the order of their ranks."""
        weights = np.asarray(weights, np.float64)
        return np.bincount(ranks.query, weights, minlength=len(relevant))

    def ndcg(count):
        # Both sums run in the order of ranks, so that a perfect query gets exactly 1.
        ideal = np.cumsum(1 / np.log2(np.arange(2, count + 2)))
        return total((rank <= count) / np.log2(rank + 1)) / ideal[np.minimum(most, count) - 1]

    at_k = {
        "recall": lambda count: total((place == 1) & (rank <= count)),
        "precision": lambda count: total(rank <= count) / count,
        "ndcg": ndcg,
    }
    of_all = {
        "map": lambda: total(place / rank) / most,
        "map@r": lambda: total(among_r * place / rank) / most,
        "r_precision": lambda: total(among_r) / most,
        "mrr": lambda: total((place == 1) / rank),
    }
    values = {}
    for name in metrics:
        if name in at_k:
            values.update({f"{name}@{count}": at_k[name](count) for count in counts})
        else:
            values[name] = of_all[name]()
    return values
