"""Comparison of runs: per-query values in files, and confidence intervals of their differences."""

import json
import pathlib
from typing import NamedTuple

import numpy as np

from tfdml.checks import check, check_type
from tfdml.evaluation import statistics
from tfdml.evaluation.metrics import without_twins
from tfdml.files import replacing

_TAKEN = ("labels", "images", "ids", "file", "allow_pickle")  # the last two by numpy.savez


class ScoredQueries(NamedTuple):
    """Per-query values of a run.

    Args:
        values: {name: (n,) floats or booleans, finite}, one value per query.
        labels: (n,) or (n, 1) integers of any size, the class id of each query.
        images: {name: text, number or None} that identifies the images, such as dataset and split.
        ids: (n,) texts, such as paths, that name the queries; None if there are none.
    """

    values: dict
    labels: np.ndarray
    images: dict
    ids: np.ndarray | None = None


def save_queries(path, values, labels, *, images, ids=None):
    """Writes the values of each query to a compressed NumPy archive, for `compare`.

    An existing archive is replaced atomically. Arguments are those of `ScoredQueries`.

    Raises:
        TypeError: If an argument has another type, or `images` cannot be written as JSON.
        ValueError: If the shapes disagree, a value is not finite, or a name is reserved.
    """
    table = statistics.values_table(values)
    labels = statistics.query_labels(labels, table)
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
            labels = statistics.query_labels(labels, statistics.values_table(arrays))
        except Exception as error:  # errors of zipfile, zlib, json and NumPy have no common class
            cause = "is not an archive of per-query values, or damaged"
            raise ValueError(f"{path} {cause} ({error})") from error
    return ScoredQueries(arrays, labels, images, ids)


def compare(runs, *, confidence=0.95, rounds=1000, seed=0):
    """Scores of runs and their differences from the first run, with intervals over whole classes.

    Args:
        runs: {name: ScoredQueries}, two or more, of the same images in the same order.
        confidence, rounds, seed: As for `bootstrap_intervals`.

    Returns:
        {"images", "queries", "classes", "confidence", "rounds", "seed", "left_out", "runs"}, which
        JSON can hold. "runs" is {run: {score: {"score", "low", "high", "difference"}}} for the
        scores that all runs have; "difference" is that of `paired_bootstrap` to the first run,
        which has none. "left_out" lists the scores that some run lacks.

    Raises:
        TypeError: If `runs` is not a dict.
        ValueError: If runs are of different images or have no score in common, there is only one
            run or class, or an option is out of range.
    """
    check_type(isinstance(runs, dict), "`runs` must be a dict", runs=type(runs).__name__)
    check(len(runs) > 1, "`runs` must be two or more", runs=list(runs))
    first, baseline = next(iter(runs.items()))
    for name, run in runs.items():
        named = baseline.ids is not None and run.ids is not None
        mine, other = _facts(baseline, named), _facts(run, named)
        fact = next((fact for fact in mine | other if mine.get(fact) != other.get(fact)), "")
        expectation = f"`runs` must be scored on the same images: {fact} differs"
        if fact == "content":
            expectation += ". Scores of earlier versions lack the sizes of files: score those again"
        check(not fact, expectation, **{fact: {first: mine.get(fact), name: other.get(fact)}})
    scores = {name: list(run.values) for name, run in runs.items()}
    shared = [name for name in baseline.values if all(name in each for each in scores.values())]
    check(shared, "`runs` must have a score in common", runs=scores)
    options = {"confidence": confidence, "rounds": rounds, "seed": seed}
    values = {(name, score): run.values[score] for name, run in runs.items() for score in shared}
    base = {(name, score): baseline.values[score] for name, score in values}
    intervals = statistics.bootstrap_intervals(values, baseline.labels, **options)
    differences = statistics.paired_bootstrap(values, base, baseline.labels, **options)
    compared = {name: {} for name in runs}
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
    """Text table of the result of `compare`: for each score, one line per run with its difference.

    A star marks a difference whose interval excludes 0.
    """
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
