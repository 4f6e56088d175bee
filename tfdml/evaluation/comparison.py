"""Comparison of runs by the values of each query: files, averages, confidence intervals."""

import json
import pathlib
from typing import NamedTuple

import numpy as np
import scipy.stats

from tfdml.checks import check, check_finite, check_type
from tfdml.evaluation import inputs
from tfdml.evaluation.metrics import without_twins
from tfdml.files import replacing

_TAKEN = ("labels", "images", "ids", "file", "allow_pickle")  # the last two by numpy.savez


class ScoredQueries(NamedTuple):
    """Per-query values of a run."""

    values: dict  # {name: (n,) floats or booleans, finite}
    labels: np.ndarray  # (n,) or (n, 1) integers of any size, the class ids
    images: dict  # {name: text, number or None}: the images, such as dataset and split
    ids: np.ndarray | None = None  # (n,) texts that name the queries, such as paths


def save_queries(path, values, labels, *, images, ids=None):
    """Writes the values of each query, as in `ScoredQueries`, to a NumPy archive for `compare`.

    Raises:
        TypeError, ValueError: If an argument is not such, or a name is reserved.
    """
    table = _table(values)
    labels = _query_labels(labels, table)
    texts = len(labels) if ids is None else len(ids)
    check(texts == len(labels), "`ids` must have one text per query", ids=texts, labels=len(labels))
    taken = sorted(set(values) & set(_TAKEN))
    check(not taken, f"`values` must not be named {', '.join(_TAKEN)}", values=taken)
    columns = dict(zip(values, table.T, strict=True))
    if ids is not None:
        columns["ids"] = np.asarray(ids, str)
    with replacing(pathlib.Path(path)) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, labels=labels, images=json.dumps(images), **columns)


def load_queries(path):
    """Reads what `save_queries` wrote, as `ScoredQueries`.

    Raises:
        OSError, ValueError: If it cannot be read, is not such an archive, or damaged.
    """
    with open(path, "rb") as file:
        try:
            arrays = dict(np.load(file))
            labels, images = arrays.pop("labels"), json.loads(str(arrays.pop("images")))
            ids = arrays.pop("ids", None)
            check_type(isinstance(images, dict), "`images` must be a dict", images=images)
            labels = _query_labels(labels, _table(arrays))
        except Exception as error:  # errors of zipfile, zlib, json and NumPy have no common class
            cause = "is not an archive of per-query values, or damaged"
            raise ValueError(f"{path} {cause} ({error})") from error
    return ScoredQueries(arrays, labels, images, ids)


def class_averages(values, labels):
    """Mean of (n,) finite values in each class of (n,) or (n, 1) integers.

    Returns:
        Three arrays: (C,) class ids, ascending; (C,) float64 means; (C,) numbers of values.
    """
    table = _table({"values": values})
    classes, sums, sizes = _class_sums(table, _query_labels(labels, table))
    return classes, sums[:, 0] / sizes, sizes


def macro_average(values, labels):
    """Mean over classes of `class_averages`, with its arguments and errors, a Python float."""
    return float(np.mean(class_averages(values, labels)[1]))


def bootstrap_intervals(values, labels=None, *, confidence=0.95, rounds=1000, seed=0):
    """Confidence intervals of scores on other classes of the same kind.

    A score is a mean of per-query values v. Each round draws C of the C classes with replacement,
    each with all of its queries q, as queries of one class are correlated:

        mean = sum over drawn c of (sum of v[q] in c) / sum over drawn c of (number of q in c)

    The interval reaches from the (1 - confidence) / 2 to the (1 + confidence) / 2 quantile of these
    means. All scores share the draws. It covers neither the seed of the training nor a gallery of
    another size, and is too narrow for few classes: in simulations, a nominal 95% interval held the
    true mean in 90% of the trials with 10 classes, in 93% with 20 and in 95% with 50.

    Args:
        values: {name: (n,) floats or booleans, finite}, one value per query, such as its hits.
        labels: (n,) or (n, 1) integers of any size, the class id of each query. Without them
            queries are drawn, for an interval most often far too narrow for new classes.
        confidence: Share of the means inside the interval; > 0 and < 1.
        rounds: Number of means, of which two or more must lie outside of the interval.
        seed: Integer >= 0, seed of the draws.

    Returns:
        {name: (low, high)}, Python floats, low <= high.

    Raises:
        TypeError, ValueError: If an argument is not such, or there is only one class or query.

    Source:
        Efron. Bootstrap methods: another look at the jackknife. Annals of Statistics 1979.
        Efron, Tibshirani. An introduction to the bootstrap. 1993, ch. 13 (intervals) and 15 (p).
        Field, Welsh. Bootstrapping clustered data. JRSS B 2007 (whole classes).
    """
    (low, high), _ = _bootstrap(_table(values), labels, confidence, rounds, seed)
    return dict(zip(values, zip(low.tolist(), high.tolist(), strict=True), strict=True))


def paired_bootstrap(values, baseline, labels=None, *, confidence=0.95, rounds=1000, seed=0):
    """Differences of the scores of two models on the same queries, with confidence intervals.

    The interval is that of `bootstrap_intervals` for values - baseline. Over the rounds

        p = min(1, 2 * (1 + min(#(mean <= 0), #(mean >= 0))) / (rounds + 1))

    is the two-sided p-value, of these two models on new classes: not of the methods that trained
    them, which takes several seeds. Other arguments, errors and source are those of
    `bootstrap_intervals`.

    Args:
        baseline: The `values` of the other model, with the same names in any order.

    Returns:
        {name: {"difference", "low", "high", "p"}}, Python floats; the difference is the mean of
        `values` minus that of `baseline`.
    """
    table, base = _table(values), _table(baseline, "baseline")
    names, queries = list(baseline), (len(table), len(base))
    same = set(values) == set(names) and len(table) == len(base)
    expectation = "`values` and `baseline` must have the same names and number of queries"
    check(same, expectation, values=list(values), baseline=names, queries=queries)
    differences = table - base[:, [names.index(name) for name in values]]
    (low, high), means = _bootstrap(differences, labels, confidence, rounds, seed)
    other_side = np.minimum((means <= 0).sum(axis=1), (means >= 0).sum(axis=1))
    p = np.minimum(1, 2 * (1 + other_side) / (rounds + 1))
    found = {"difference": differences.mean(axis=0), "low": low, "high": high, "p": p}
    return {name: {key: float(of[i]) for key, of in found.items()} for i, name in enumerate(values)}


def compare(runs, *, confidence=0.95, rounds=1000, seed=0):
    """Scores of runs and their differences from the first run, with intervals over whole classes.

    Args:
        runs: {name: ScoredQueries}, two or more, of the same images in the same order.
        confidence, rounds, seed: As for `bootstrap_intervals`.

    Returns:
        {"images", "queries", "classes", "confidence", "rounds", "seed", "left_out", "runs"}, which
        JSON can hold. "runs" is {run: {score: {"score", "low", "high", "difference"}}} for the
        scores that all runs have; "difference" is that of `paired_bootstrap` to the first run,
        which has none. "left_out" lists the other scores.

    Raises:
        TypeError, ValueError: As for `bootstrap_intervals`, or if runs are of different images or
            have no score in common.
    """
    check_type(isinstance(runs, dict), "`runs` must be a dict", runs=type(runs).__name__)
    check(len(runs) > 1, "`runs` must be two or more", runs=list(runs))
    first, baseline = next(iter(runs.items()))
    for name, run in runs.items():
        named = baseline.ids is not None and run.ids is not None
        mine, other = _facts(baseline, named), _facts(run, named)
        fact = next((fact for fact in mine | other if mine.get(fact) != other.get(fact)), "")
        expectation = f"`runs` must be scored on the same images: {fact} differs"
        check(not fact, expectation, **{fact: {first: mine.get(fact), name: other.get(fact)}})
    scores = {name: list(run.values) for name, run in runs.items()}
    shared = [name for name in baseline.values if all(name in each for each in scores.values())]
    check(shared, "`runs` must have a score in common", runs=scores)
    options = {"confidence": confidence, "rounds": rounds, "seed": seed}
    values = {(name, score): run.values[score] for name, run in runs.items() for score in shared}
    base = {(name, score): baseline.values[score] for name, score in values}
    differences = paired_bootstrap(values, base, baseline.labels, **options)
    compared = {name: {} for name in runs}
    intervals = bootstrap_intervals(values, baseline.labels, **options)
    for (name, score), (low, high) in intervals.items():
        mean = float(np.mean(values[name, score]))
        compared[name][score] = {"score": mean, "low": low, "high": high}
        if name != first:
            compared[name][score]["difference"] = differences[name, score]
    return {
        "images": baseline.images,
        "queries": len(baseline.labels),
        "classes": len(np.unique(baseline.labels)),
        **options,
        "left_out": sorted(set().union(*scores.values()) - set(shared)),
        "runs": compared,
    }


def comparison_table(comparison):
    """Text of what `compare` returns; a star marks a difference whose interval excludes 0."""
    runs, lines = comparison["runs"], []
    first, width = next(iter(runs)), max(map(len, runs))
    for score in without_twins(runs[first]):
        lines.append(score)
        for name, scores in runs.items():
            line = f"  {name:{width}}  {_interval(scores[score], 'score')}"
            if difference := scores[score].get("difference"):
                excludes = not difference["low"] <= 0 <= difference["high"]
                line += f"  {_interval(difference, 'difference', '+')}{' *' if excludes else ''}"
            lines.append(line)
    share = f"{100 * comparison['confidence']:.6g}%"
    lines.append(f"\n[ ]: {share} bootstrap intervals over classes, not over training seeds.")
    lines.append(f"*: the interval of the difference from {first} excludes 0.")
    if comparison["left_out"]:
        lines.append(f"Not scored in all runs: {', '.join(comparison['left_out'])}.")
    return "\n".join(lines)


def _table(values, name="values"):
    """{name: (n,) numbers} as an array, checked: (n, m) float64, one column per score."""
    expectation = f"`{name}` must be a dict of one array per score"
    check_type(isinstance(values, dict), expectation, **{name: type(values).__name__})
    arrays = {score: np.asarray(array) for score, array in values.items()}
    are_numbers = all(array.dtype.kind in "fbiu" for array in arrays.values())
    received = {name: {score: (array.dtype.name, array.shape) for score, array in arrays.items()}}
    check_type(are_numbers, f"`{name}` must be numbers", **received)
    shapes = {array.shape for array in arrays.values()}
    alike = len(shapes) == 1 and all(len(shape) == 1 and shape[0] for shape in shapes)
    expectation = f"`{name}` must hold scores of shape (n,), one value per query, n >= 1"
    check(alike, expectation, **received)
    not_finite = [score for score, array in arrays.items() if not np.isfinite(array).all()]
    check(not not_finite, f"`{name}` must be finite", not_finite=not_finite)
    return np.stack([array.astype(np.float64) for array in arrays.values()], axis=1)


def _query_labels(labels, table):
    """Labels as an array, checked: (n,) integers, one for each row of a table of values."""
    labels = inputs.class_ids(labels)
    expectation = "`labels` and `values` must have the same number of queries"
    check(len(labels) == len(table), expectation, labels=len(labels), values=len(table))
    return labels


def _class_sums(table, labels):
    """(C,) class ids, ascending, (C, m) sums of the columns over each class, and (C,) sizes."""
    classes, ids, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return classes, np.stack([np.bincount(ids, column) for column in table.T], axis=1), sizes


def _bootstrap(table, labels, confidence, rounds, seed):
    """Two (m,) ends of the intervals, and the (m, rounds) means of the columns."""
    check_finite(confidence=confidence)
    check(0 < confidence < 1, "`confidence` must be > 0 and < 1", confidence=confidence)
    rounds = inputs.whole_number(rounds, "rounds", at_least=1)
    expectation = "`rounds` must leave 2 or more means outside of the interval"
    check(rounds * (1 - confidence) > 2 - 1e-9, expectation, rounds=rounds, confidence=confidence)
    rng, kind = inputs.generator(seed), "queries" if labels is None else "classes"
    labels = np.arange(len(table)) if labels is None else _query_labels(labels, table)
    _, sums, sizes = _class_sums(table, labels)
    groups = len(sizes)
    check(groups > 1, f"`values` must be of two {kind} or more", **{kind: groups})
    least, most = table.min(axis=0), table.max(axis=0)

    def means(drawn, axis):
        counts = np.stack([np.bincount(row, minlength=groups) for row in drawn]).astype(np.float64)
        # Rounding can move a mean out of the range of its values, and widen intervals of width 0.
        return np.clip(counts @ sums / (counts @ sizes)[:, None], least, most).T

    options = {"vectorized": True, "method": "percentile", "confidence_level": confidence}
    options |= {"n_resamples": rounds, "batch": max(1, 2**20 // groups), "rng": rng}
    found = scipy.stats.bootstrap([np.arange(groups)], means, **options)
    return found.confidence_interval, found.bootstrap_distribution


def _interval(numbers, name, sign=""):
    value, low, high = (f"{numbers[key]:{sign}.4f}" for key in (name, "low", "high"))
    return f"{value} [{low}, {high}]"


def _facts(run, named):
    """{what: value} of the images of a run, with the names of its queries if they are `named`."""
    facts = {"queries": len(run.labels), **run.images}
    for what, values in (("name", run.ids if named else ()), ("label", run.labels)):
        for query, value in enumerate(np.asarray(values).tolist()):
            facts[f"{what} of query {query}"] = value
    return facts
