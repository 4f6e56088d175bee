"""Comparison of runs: per-query values in files, and confidence intervals of their differences."""

import json
import pathlib
import zipfile
import zlib
from typing import NamedTuple

import numpy as np

from tfdml.checks import check, check_type
from tfdml.evaluation import inputs, statistics
from tfdml.files import replacing

_OWN_KEYS = ("labels", "images")
_TAKEN = (*_OWN_KEYS, "ids", "file", "allow_pickle")  # the last two are arguments of numpy.savez


class ScoredQueries(NamedTuple):
    """Per-query values of a run.

    Args:
        values: {name: (n,) float64}, one value per query.
        labels: (n,) integers, the class id of each query.
        images: {name: text, number or None} that identifies the images, such as dataset and split.
        ids: (n,) texts, such as paths, that name the queries; None if the archive has none.
    """

    values: dict
    labels: np.ndarray
    images: dict
    ids: np.ndarray | None = None


def save_queries(path, values, labels, *, images, ids=None):
    """Writes the values of each query to a compressed NumPy archive, for `compare`.

    The keys of the archive are `labels`, `images`, `ids` if given, and the names of the values. The
    values are stored in float64, so that their means equal the scores to the last digit. An
    existing archive is replaced atomically.

    Args:
        path: Path of the archive, such as `evaluation_queries.npz`.
        values: {name: (n,) floats or booleans, finite}, in the order of the images.
        labels: (n,) or (n, 1) integers of any size, the class id of each query.
        images: {name: text, number or None} that identifies these images.
        ids: (n,) texts, such as paths, that name the queries.

    Raises:
        TypeError: If `labels` are not integers, `values` is not a dict of numbers, or `images`
            cannot be written as JSON.
        ValueError: If the shapes disagree, a value is not finite, or a name is reserved.
    """
    table, labels = statistics.values_table(values), inputs.class_ids(labels)
    statistics.check_same_queries(labels=labels, values=table)
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
    """Reads what `save_queries` wrote.

    Args:
        path: Path of the archive.

    Returns:
        The `ScoredQueries`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not such an archive, or damaged.
    """
    try:
        with np.load(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
        labels, images = (arrays.pop(name) for name in _OWN_KEYS)
        images, ids = json.loads(str(images)), arrays.pop("ids", None)
        check_type(isinstance(images, dict), "`images` must be a dict", images=images)
        table = statistics.values_table(arrays)
        check(len(table) == len(labels), "lengths differ", labels=len(labels))
        return ScoredQueries(arrays, inputs.class_ids(labels), images, ids)
    except FileNotFoundError:
        raise
    except (OSError, EOFError, ValueError, TypeError, AttributeError, LookupError) as error:
        raise ValueError(f"{path} is not an archive of per-query values ({error})") from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{path} is damaged ({error})") from error


def compare(runs, *, confidence=0.95, rounds=1000, seed=0):
    """Scores of runs and their differences from the first run, with confidence intervals.

    The intervals are those of `bootstrap_intervals` and `paired_bootstrap` over whole classes: they
    estimate the scores on other classes. They do not cover the seed of the training.

    Args:
        runs: {name: ScoredQueries}, two or more, of the same images in the same order.
        confidence: As for `bootstrap_intervals`.
        rounds: As for `bootstrap_intervals`.
        seed: As for `bootstrap_intervals`.

    Returns:
        {"images", "queries", "classes", "confidence", "rounds", "seed", "left_out", "runs"}, which
        JSON can hold. "runs" is {run: {score: {"score", "low", "high", "difference"}}} for the
        scores that all runs have; "difference" is that of `paired_bootstrap` to the first run,
        which has none. "left_out" lists the scores that some run lacks.

    Raises:
        TypeError: If `runs` is not a dict.
        ValueError: If there is only one run, runs were scored on different images or have no score
            in common, there is only one class, or an option is out of range.
    """
    check_type(isinstance(runs, dict), "`runs` must be a dict", runs=type(runs).__name__)
    check(len(runs) > 1, "`runs` must be two or more", runs=list(runs))
    first, baseline = next(iter(runs.items()))
    for name, run in runs.items():
        _check_same_images(first, baseline, name, run)
    shared = [name for name in baseline.values if all(name in run.values for run in runs.values())]
    everywhere = {name for run in runs.values() for name in run.values}
    scores = {name: list(run.values) for name, run in runs.items()}
    check(shared, "`runs` must have a score in common", runs=scores)
    options = {"confidence": confidence, "rounds": rounds, "seed": seed}
    compared = {}
    for name, run in runs.items():
        values, base = ({score: of.values[score] for score in shared} for of in (run, baseline))
        intervals = statistics.bootstrap_intervals(values, run.labels, **options)
        compared[name] = {
            score: {"score": float(np.mean(values[score])), "low": low, "high": high}
            for score, (low, high) in intervals.items()
        }
        if name != first:
            differences = statistics.paired_bootstrap(values, base, run.labels, **options)
            for score, difference in differences.items():
                compared[name][score]["difference"] = difference
    return {
        "images": baseline.images,
        "queries": len(baseline.labels),
        "classes": len(np.unique(baseline.labels)),
        **options,
        "left_out": sorted(everywhere - set(shared)),
        "runs": compared,
    }


def _check_same_images(first, baseline, name, run):
    """Raises a ValueError that names the first difference between the images of two runs."""
    facts = [{"queries": len(of.labels), **of.images} for of in (baseline, run)]
    digests = ("classes", "content", "gallery")
    for fact in sorted(set(facts[0]) | set(facts[1]), key=lambda name: (name in digests, name)):
        mine, other = (of.get(fact) for of in facts)
        received = {"runs": [first, name]}
        if fact not in digests:
            received = {fact: {first: mine, name: other}}
        expectation = f"`runs` must be scored on the same images: {fact} differs"
        if fact == "content":
            expectation += ". Scores of earlier versions lack the sizes of files: score those again"
        check(mine == other, expectation, **received)
    if baseline.ids is not None and run.ids is not None:
        expectation = "`runs` must be scored on the same images: the names of queries differ"
        place = int(np.argmax(baseline.ids != run.ids))
        pair = {of: str(ids[place]) for of, ids in ((first, baseline.ids), (name, run.ids))}
        check(np.array_equal(baseline.ids, run.ids), expectation, names=pair)
    same_labels = baseline.labels.tolist() == run.labels.tolist()
    expectation = "`runs` must be scored on the same images: labels differ"
    check(same_labels, expectation, runs=[first, name])
