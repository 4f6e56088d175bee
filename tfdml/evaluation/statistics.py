"""Averages of per-query values over classes, and their bootstrap confidence intervals."""

import numpy as np

from tfdml.checks import check, check_finite, check_type
from tfdml.evaluation import inputs

_DRAWS_AT_ONCE = 2**22  # classes drawn per block of rounds: about 100 MB


def class_averages(values, labels):
    """Mean value of each class.

    Args:
        values: (n,) finite floats, such as one of `retrieval_scores_per_query`.
        labels: (n,) or (n, 1) integers of any size, the classes of the values.

    Returns:
        Three arrays: (C,) class ids, ascending; (C,) float64 means; (C,) numbers of values.

    Raises:
        TypeError: If `labels` are not integers or `values` not numbers.
        ValueError: If the shapes disagree, nothing is given, or a value is not finite.

    Example:
        >>> class_averages(np.array([1.0, 0.0, 1.0]), np.array([7, 7, 9]))
        (array([7, 9]), array([0.5, 1. ]), array([2, 1]))
    """
    values, labels = np.asarray(values), inputs.class_ids(labels)
    check_type(values.dtype.kind in "biuf", "`values` must be numbers", dtype=values.dtype.name)
    shapes = {"values.shape": values.shape, "labels.shape": labels.shape}
    check(values.shape == labels.shape, "`values` must have one number per label", **shapes)
    check(values.size > 0, "`values` must not be empty", **shapes)
    finite = np.isfinite(values)
    check(finite.all(), "`values` must be finite", values_not_finite=int(np.count_nonzero(~finite)))
    classes, ids, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return classes, np.bincount(ids, values.astype(np.float64)) / counts, counts


def macro_average(values, labels):
    """Mean over classes of the class means: every class has the same weight, whatever its size.

    Args:
        values: As for `class_averages`.
        labels: As for `class_averages`.

    Returns:
        A Python float.

    Raises:
        TypeError: As `class_averages`.
        ValueError: As `class_averages`.

    Example:
        >>> macro_average(np.array([1.0, 0.0, 1.0]), np.array([7, 7, 9]))
        0.75
    """
    return float(np.mean(class_averages(values, labels)[1]))


def bootstrap_intervals(values, labels=None, *, confidence=0.95, rounds=1000, seed=0):
    """Confidence intervals of scores on other classes of the same kind.

    A score is a mean of per-query values v. Each round draws C of the C classes with replacement,
    each with all of its queries, as queries of one class are correlated:

        mean = sum over drawn c of (sum of v[q] over q of class c)
             / sum over drawn c of (number of q of class c)

    The interval reaches from the (1 - confidence) / 2 to the (1 + confidence) / 2 quantile of these
    means. All scores share the draws. Without labels, queries are drawn instead of classes: an
    interval for other queries of the same classes, most often far too narrow for new classes.

    The interval covers the choice of the classes, or queries, that were scored. It does not cover
    the seed of the training: train with several seeds to measure that. Nor does it cover a gallery
    of another size, as each value is computed on the given gallery. It is too narrow for few
    classes: in simulations, a nominal 95% interval held the true mean in 90% of the trials with 10
    classes, in 93% with 20 and in 95% with 50.

    Args:
        values: {name: (n,) floats or booleans, finite}, one value per query, such as its hits.
        labels: (n,) or (n, 1) integers of any size, the class id of each query. Default: each
            query is drawn by itself.
        confidence: Share of the means inside the interval; > 0 and < 1.
        rounds: Number of means; two or more must lie outside of the interval, so at least 40 for a
            confidence of 0.95. 1,000 determine an end to about a fiftieth of the width.
        seed: Integer >= 0, seed of the draws; the same seed gives the same intervals.

    Returns:
        {name: (low, high)}, Python floats, low <= high.

    Raises:
        TypeError: If `labels` are not integers, or `values` is not a dict of numbers.
        ValueError: If the shapes disagree, a value is not finite, there is only one class (without
            labels: only one query), or an option is out of range.

    Source:
        Efron. Bootstrap methods: another look at the jackknife. Annals of Statistics 1979.
        Field, Welsh. Bootstrapping clustered data. JRSS B 2007 (whole classes).

    Example:
        All queries of one class are hits, none of the other: new classes may score anything.

        >>> values = {"recall@1": np.array([1.0, 1.0, 0.0, 0.0])}
        >>> bootstrap_intervals(values, np.array([7, 7, 9, 9]))
        {'recall@1': (0.0, 1.0)}
    """
    means = _resampled_means(values_table(values), labels, confidence, rounds, seed)
    ends = _interval_ends(means, confidence)
    return dict(zip(values, zip(*ends.tolist(), strict=True), strict=True))


def paired_bootstrap(values, baseline, labels=None, *, confidence=0.95, rounds=1000, seed=0):
    """Differences of the scores of two models on the same queries, with confidence intervals.

    With d = values - baseline, query by query, the interval is that of `bootstrap_intervals` for d:
    a draw of easy classes raises both scores but hardly changes their difference. Over the rounds

        p = min(1, 2 * (1 + min(#(mean <= 0), #(mean >= 0))) / (rounds + 1))

    is the two-sided p-value: below 1 - confidence approximately if the interval excludes 0, and
    never 0. The test compares these two models on new classes, not the methods that trained them:
    for that, compare several seeds. Of many comparisons at 95%, one in 20 excludes 0 by chance.

    Args:
        values: {name: (n,) floats or booleans, finite}, one value per query.
        baseline: The same for the other model, with the same names in any order.
        labels: As for `bootstrap_intervals`.
        confidence: As for `bootstrap_intervals`.
        rounds: As for `bootstrap_intervals`; p is at least 2 / (rounds + 1).
        seed: As for `bootstrap_intervals`.

    Returns:
        {name: {"difference", "low", "high", "p"}}, Python floats; the difference is the mean of
        `values` minus that of `baseline`.

    Raises:
        TypeError: As `bootstrap_intervals`.
        ValueError: As `bootstrap_intervals`, or if the two do not have the same names and queries.

    Source:
        Efron, Tibshirani. An introduction to the bootstrap. 1993, ch. 13 and 15.

    Example:
        >>> better, base = {"map": np.array([0.5, 1.0])}, {"map": np.array([0.25, 0.5])}
        >>> paired_bootstrap(better, base, np.array([1, 2]), rounds=999)
        {'map': {'difference': 0.375, 'low': 0.25, 'high': 0.5, 'p': 0.002}}
    """
    table, base = values_table(values), values_table(baseline, "baseline")
    names = list(baseline)
    expectation = "`values` and `baseline` must have the same names"
    check(set(values) == set(baseline), expectation, values=list(values), baseline=names)
    check_same_queries(values=table, baseline=base)
    differences = table - base[:, [names.index(name) for name in values]]
    means = _resampled_means(differences, labels, confidence, rounds, seed)
    low, high = _interval_ends(means, confidence)
    other_side = np.minimum((means <= 0).sum(axis=0), (means >= 0).sum(axis=0))
    p = np.minimum(1, 2 * (1 + other_side) / (rounds + 1))
    columns = zip(values, differences.mean(axis=0), low, high, p, strict=True)
    found = {name: map(float, numbers) for name, *numbers in columns}
    keys = ("difference", "low", "high", "p")
    return {name: dict(zip(keys, numbers, strict=True)) for name, numbers in found.items()}


def values_table(values, name="values"):
    """Returns per-query values as an array, checked: (n, m) float64, one column per score.

    Args:
        values: {name: (n,) floats or booleans}.
        name: Name of the dict in messages.

    Raises:
        TypeError: If it is not a dict, or its values are not numbers.
        ValueError: If it is empty, the shapes disagree or a number is not finite.
    """
    expectation = f"`{name}` must be a dict of one array per score"
    check_type(isinstance(values, dict), expectation, **{name: type(values).__name__})
    check(values, f"`{name}` must hold at least one score", **{name: values})
    arrays = {score: np.asarray(array) for score, array in values.items()}
    dtypes = {score: str(array.dtype) for score, array in arrays.items()}
    are_numbers = all(array.dtype.kind in "fbiu" for array in arrays.values())
    check_type(are_numbers, f"`{name}` must be numbers", **{name: dtypes})
    shapes = {score: array.shape for score, array in arrays.items()}
    alike = len(set(shapes.values())) == 1 and all(len(shape) == 1 for shape in shapes.values())
    expectation = f"`{name}` must have shape (n,), one value per query, for every score"
    check(alike, expectation, **{name: shapes})
    table = np.stack([array.astype(np.float64) for array in arrays.values()], axis=1)
    check(table.size > 0, f"`{name}` must not be empty", **{name: shapes})
    columns = zip(arrays, table.T, strict=True)
    not_finite = [score for score, column in columns if not np.isfinite(column).all()]
    check(not not_finite, f"`{name}` must be finite", not_finite=not_finite)
    return table


def check_same_queries(**values):
    """Raises a ValueError unless the two named arrays have one row per query, of the same ones."""
    (first, a), (second, b) = values.items()
    expectation = f"`{first}` and `{second}` must have the same number of queries"
    check(len(a) == len(b), expectation, **{first: len(a), second: len(b)})


def _interval_ends(means, confidence):
    """(2, m) lower and upper ends."""
    return np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)


def _resampled_means(table, labels, confidence, rounds, seed):
    """(rounds, m) means of the columns over groups of rows drawn with replacement."""
    check_finite(confidence=confidence)
    check(0 < confidence < 1, "`confidence` must be > 0 and < 1", confidence=confidence)
    rounds = inputs.whole_number(rounds, "rounds", at_least=1)
    expectation = "`rounds` must leave 2 or more means outside of the interval"
    enough = rounds * (1 - confidence) > 2 - 1e-9
    check(enough, expectation, rounds=rounds, confidence=confidence)
    rng = np.random.default_rng(inputs.whole_number(seed, "seed", at_least=0))
    sums, sizes = _groups(table, labels)
    groups, means = len(sizes), np.empty((rounds, table.shape[1]))
    step = max(1, _DRAWS_AT_ONCE // groups)
    for first in range(0, rounds, step):
        block = means[first : first + step]
        drawn = rng.integers(0, groups, (len(block), groups))
        drawn += np.arange(0, drawn.size, groups)[:, None]
        counts = np.bincount(drawn.reshape(-1), minlength=drawn.size)
        counts = counts.reshape(drawn.shape).astype(np.float64)
        block[:] = counts @ sums / (counts @ sizes)[:, None]
    # Rounding can move a mean outside the range of its values, and widen intervals of width 0.
    return np.clip(means, table.min(axis=0), table.max(axis=0), out=means)


def _groups(table, labels):
    """Sums of the columns over each class, or each row if there are no labels, and group sizes."""
    if labels is None:
        check(len(table) > 1, "`values` must hold two queries or more", queries=len(table))
        return table, np.ones(len(table))
    labels = inputs.class_ids(labels)
    check_same_queries(labels=labels, values=table)
    classes, ids, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    check(len(classes) > 1, "`labels` must hold two classes or more", classes=len(classes))
    sums = np.stack([np.bincount(ids, weights=column) for column in table.T], axis=1)
    return sums, sizes.astype(np.float64)
