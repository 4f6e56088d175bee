"""What retrieval metrics make of the ranks of a query's mates, and how many ranks they need."""

import numpy as np

from tfdml.checks import check, unknown_name

AT_K = ("recall", "precision", "ndcg")
METRICS = ("recall", "precision", "map", "map@r", "r_precision", "mrr", "ndcg")
_OF_NEAREST = {"recall", "mrr"}
_OF_ALL_RANKS = {"map", "mrr"}


def metric_names(metrics):
    """Returns `metrics`, one name or several or None for all, as a list without repeats.

    Raises:
        ValueError: If a name is none of `METRICS`, or there is none.
    """
    names = METRICS if metrics is None else [metrics] if isinstance(metrics, str) else metrics
    names = list(dict.fromkeys(names))
    check(names, "`metrics` must not be empty", metrics=metrics)
    for name in names:
        if name not in METRICS:
            raise ValueError(unknown_name("metric", name, METRICS))
    return names


def need_only_nearest(metrics):
    """Whether the ranks of nearest mates suffice for the metrics."""
    return _OF_NEAREST.issuperset(metrics)


def depth_needed(metrics, counts, mates):
    """(n,) floats: the ranks that the metrics ask for, of queries with so many mates."""
    if _OF_ALL_RANKS.intersection(metrics):
        return np.full(len(mates), np.inf)
    most = max(counts) if set(AT_K).intersection(metrics) else 0
    if {"map@r", "r_precision"}.intersection(metrics):
        return np.maximum(most, mates).astype(np.float64)
    return np.full(len(mates), float(most))


def metric_values(metrics, counts, ranks, mates):
    """{name: (b,) floats in [0, 1]}, one per query, of the metrics at each of the counts K.

    Args:
        metrics: Names of `METRICS`.
        counts: The numbers K of "recall@K", "precision@K" and "ndcg@K".
        ranks: `MateRanks` of b queries, complete up to `depth_needed`.
        mates: (b,) numbers of mates.
    """
    values = {}
    for name in metrics:
        if name in AT_K:
            for count in counts:
                values[f"{name}@{count}"] = _VALUES_AT_K[name](ranks, mates, count)
        else:
            values[name] = _VALUES[name](ranks, mates)
    return values


def _per_query(ranks, weights):
    """(b,) sums of the weights of each query's mates, in the order of their ranks."""
    weights = np.asarray(weights, np.float64)
    return np.bincount(ranks.query, weights, minlength=ranks.last - ranks.first)


def _recall(ranks, mates, count):
    return _per_query(ranks, (ranks.place == 1) & (ranks.rank <= count))


def _precision(ranks, mates, count):
    return _per_query(ranks, ranks.rank <= count) / count


def _average_precision(ranks, mates):
    return _per_query(ranks, ranks.place / ranks.rank) / np.maximum(mates, 1)


def _average_precision_at_r(ranks, mates):
    found = ranks.rank <= mates[ranks.query]
    return _per_query(ranks, found * ranks.place / ranks.rank) / np.maximum(mates, 1)


def _r_precision(ranks, mates):
    return _per_query(ranks, ranks.rank <= mates[ranks.query]) / np.maximum(mates, 1)


def _reciprocal_rank(ranks, mates):
    return _per_query(ranks, (ranks.place == 1) / ranks.rank)


def _ndcg(ranks, mates, count):
    # Sums in the order of ranks on both sides, so that a perfect query gets exactly 1.
    ideal = np.cumsum(1 / np.log2(np.arange(2, count + 2)))
    gain = (ranks.rank <= count) / np.log2(ranks.rank + 1)
    return _per_query(ranks, gain) / ideal[np.clip(mates, 1, count) - 1]


_VALUES_AT_K = {"recall": _recall, "precision": _precision, "ndcg": _ndcg}
_VALUES = {
    "map": _average_precision,
    "map@r": _average_precision_at_r,
    "r_precision": _r_precision,
    "mrr": _reciprocal_rank,
}
