"""Retrieval metrics computed from the ranks of relevant rows."""

import numpy as np

from tfdml.checks import check, unknown_name

AT_K = ("recall", "precision", "ndcg")
METRICS = ("recall", "precision", "map", "map@r", "r_precision", "mrr", "ndcg")
_OF_NEAREST = {"recall", "mrr"}
_OF_ALL_RANKS = {"map", "mrr"}


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
    return _OF_NEAREST.issuperset(metrics)


def depth_needed(metrics, counts, relevant):
    """(n,) floats: the largest rank that the metrics need for each query."""
    if _OF_ALL_RANKS.intersection(metrics):
        return np.full(len(relevant), np.inf)
    most = max(counts) if set(AT_K).intersection(metrics) else 0
    if {"map@r", "r_precision"}.intersection(metrics):
        return np.maximum(most, relevant).astype(np.float64)
    return np.full(len(relevant), float(most))


def metric_values(metrics, counts, ranks, relevant):
    """{name: (b,) floats in [0, 1]}, one per query, of the metrics at each of the counts K.

    Args:
        metrics: Names of `METRICS`.
        counts: The numbers K of "recall@K", "precision@K" and "ndcg@K".
        ranks: `RelevantRanks` of b queries, complete up to `depth_needed`.
        relevant: (b,) numbers of relevant rows.
    """
    values = {}
    for name in metrics:
        if name in AT_K:
            for count in counts:
                values[f"{name}@{count}"] = _VALUES_AT_K[name](ranks, relevant, count)
        else:
            values[name] = _VALUES[name](ranks, relevant)
    return values


def _per_query(ranks, weights):
    """(b,) sums of the weights of each query's relevant rows, in the order of their ranks."""
    weights = np.asarray(weights, np.float64)
    return np.bincount(ranks.query, weights, minlength=ranks.last - ranks.first)


def _recall(ranks, relevant, count):
    return _per_query(ranks, (ranks.place == 1) & (ranks.rank <= count))


def _precision(ranks, relevant, count):
    return _per_query(ranks, ranks.rank <= count) / count


def _average_precision(ranks, relevant):
    return _per_query(ranks, ranks.place / ranks.rank) / np.maximum(relevant, 1)


def _average_precision_at_r(ranks, relevant):
    found = ranks.rank <= relevant[ranks.query]
    return _per_query(ranks, found * ranks.place / ranks.rank) / np.maximum(relevant, 1)


def _r_precision(ranks, relevant):
    return _per_query(ranks, ranks.rank <= relevant[ranks.query]) / np.maximum(relevant, 1)


def _reciprocal_rank(ranks, relevant):
    return _per_query(ranks, (ranks.place == 1) / ranks.rank)


def _ndcg(ranks, relevant, count):
    # Both sums run in the order of ranks, so that a perfect query gets exactly 1.
    ideal = np.cumsum(1 / np.log2(np.arange(2, count + 2)))
    gain = (ranks.rank <= count) / np.log2(ranks.rank + 1)
    return _per_query(ranks, gain) / ideal[np.clip(relevant, 1, count) - 1]


_VALUES_AT_K = {"recall": _recall, "precision": _precision, "ndcg": _ndcg}
_VALUES = {
    "map": _average_precision,
    "map@r": _average_precision_at_r,
    "r_precision": _r_precision,
    "mrr": _reciprocal_rank,
}
