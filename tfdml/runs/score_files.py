"""The files of scores: their names, the scores as JSON, values of each query, comparisons."""

import dataclasses
import itertools
import json
import math
import pathlib

from tfdml import evaluation
from tfdml.checks import check
from tfdml.files import as_file_name, check_file, identity, shortened, write_text
from tfdml.runs.task_options import OF_FILES

# Options whose values, where they are not the default, are in the name of a file, in this order.
_NAMED = (
    *("gallery", "index", "index_parameters", "rerank", "rank_by", "hierarchy", "unseen_share"),
    *("placement", "shots", "renormalize_means", "cluster_by", "restarts", "draws", "seed"),
    "false_alarm_rate",
    *("dataset", "data_dir", *OF_FILES, "split", "level_weights", "levels", "dims", "crops"),
    *("mirror", "pca", "whiten", "expand_queries", "expansion_alpha", "reciprocal"),
    "reciprocal_options",
)
_WORDS = {  # for those that are not `name_value`
    "gallery": lambda folder: f"in_{as_file_name(pathlib.Path(folder).resolve().name)}",
    **dict.fromkeys(("index", "rank_by", "split"), str),
    **dict.fromkeys(("index_parameters", "dataset"), as_file_name),
    "hierarchy": lambda file: pathlib.Path(file).stem,
    "unseen_share": "unseen_{:g}".format,
    "placement": lambda options: "_".join(f"{name}_{value}" for name, value in options.items()),
    "renormalize_means": lambda _: "unit_means",
    "data_dir": lambda folder: pathlib.Path(folder).resolve().name,
    "boxes": lambda file: f"in_{pathlib.Path(file).stem}",
    "exclude": lambda file: f"without_{pathlib.Path(file).stem}",
    "relabel": lambda file: f"relabelled_{pathlib.Path(file).stem}",
    "level_weights": lambda weights: "_".join(["weights", *(f"{each:g}" for each in weights)]),
    "mirror": lambda _: "mirror",
    "whiten": lambda _: "whitened",
    "reciprocal_options": lambda options: "_".join(f"{n}_{value}" for n, value in options.items()),
}


def path_of(options, model):
    """Where the scores are written: `out`, or a name that encodes the options off default."""
    if options.out:
        return pathlib.Path(options.out)
    folder = pathlib.Path("runs", model.name)
    if options.model and pathlib.Path(options.model, "config.yaml").is_file():
        folder = pathlib.Path(options.model)
    unnamed = {"split"} if options.split == "test" else set()
    if model.was_trained_on(options):
        unnamed |= {"dataset", "data_dir"}
        unnamed |= {n for n in OF_FILES if getattr(options, n) == model.recipe.get(n)}
    if not options.gallery:
        unnamed |= {"index", "index_parameters"}
    if options.rank_by == "distance" or options.rerank:
        unnamed.add("rank_by")
    if options.task == "zero_shot":
        unnamed.add("seed")  # which draws nothing
    changed = options.changed([name for name in _NAMED if hasattr(options, name)])
    usual = {name: f"{name}_{{}}".format for name in changed}
    words = [(usual | _WORDS)[n](getattr(options, n)) for n in changed if n not in unnamed]
    task = [] if options.task == "retrieval" else [options.task]
    return folder / shortened("_".join(["evaluation", *task, *words]), ".json")


def write_scores(embedded, options, results):
    """Writes the scores and the options as JSON."""
    version = embedded.model.version
    content = {
        "version": version and str(version),
        **dataclasses.asdict(options),
        "task": options.task,
        "rank_by": options.rank_by,
        "scored_levels": embedded.number,
    }
    del content["levels"]  # the name of the scores of each level alone
    out = pathlib.Path(options.out)
    queries_path(out).unlink(missing_ok=True)
    write_json(out, {**content, **results})


def write_json(out, content):
    """Writes a file of scores; numbers that are not finite as null."""
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, json.dumps(finite(content), indent=2, allow_nan=False) + "\n")


def finite(content):
    """The content with None for numbers that JSON does not have."""
    if isinstance(content, dict):
        return {str(name): finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def queries_path(scores):
    """Where the values of each query are, beside a file of scores."""
    return scores.with_name(shortened(scores.stem, "_queries.npz"))


def write_queries(options, images, per_query):
    """Writes the values of each query beside the scores, for comparisons."""
    labels, ids, facts = images.labels, images.ids(options), images.identity(options)
    if images.queries is not None:
        labels, ids = labels[images.queries], [*itertools.compress(ids, images.queries)]
    if images.collection:
        facts["gallery"] = images.collection.gallery.collection.list
    path = queries_path(pathlib.Path(options.out))
    evaluation.save_queries(path, per_query, labels, images=facts, ids=ids)


def compare(options, runs):
    """Prints how the scores of runs differ from those of the first, and writes it to `out`.

    Runs are given by their folders, or by files of their scores.
    """
    files = {run: queries_of(run) for run in runs}
    several = len(files) == len(runs) == len(set(map(identity, files.values())))
    check(several, "a comparison needs runs with scores of their own", runs=runs)
    out = options.out and pathlib.Path(options.out)
    if out:
        check_file(out=out)
    scored = {run: evaluation.load_queries(file) for run, file in files.items()}
    drawn = {name: getattr(options, name) for name in ("confidence", "rounds", "seed")}
    comparison = evaluation.compare(scored, **drawn)
    print(
        f"{comparison['queries']:,} images of {comparison['classes']:,} classes:\n"
        f"{evaluation.comparison_table(comparison)}"
    )
    if out:
        write_json(out, comparison)
        print(f"Comparison: {out}")


def queries_of(run):
    """The archive of the values of each query of a run, by its folder or a file of its scores."""
    path = pathlib.Path(run)
    if not path.exists():
        raise FileNotFoundError(f"{run} does not exist")
    scores = path if path.suffix == ".json" else path / "evaluation.json"
    archive = queries_path(scores)
    if not archive.is_file():
        files = sorted(scores.parent.glob("*.json"))
        others = [str(each) for each in files if queries_path(each).is_file()]
        hint = "score the run by tfdml-evaluate, and give its folder in runs/"
        hint = f"it has those in {', '.join(others)}" if others else hint
        raise FileNotFoundError(f"{run} has no values of queries, {archive}: {hint}")
    return archive
