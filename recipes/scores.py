"""The scores of runs as rows, one per run and ranking: a CSV file, a table, and curves."""

import csv
import dataclasses
import hashlib
import json
import os
import pathlib

import numpy as np

from tfdml.files import read_text, replacing
from tfdml.runs.folders import RUNS

DISTANCES = {  # name in evaluation -> head of the column
    "positive_mean": "mean +",
    "positive_variance": "variance +",
    "negative_mean": "mean −",
    "negative_variance": "variance −",
    "lda": "LDA",
}
BY_DISTANCE, BY_SIMILARITY = "distance", "similarity"
RECALL_AT_1, NMI, F1, TRAIN_CLASSES = "recall@1", "nmi", "f1", "train_classes"
UNTRAINED, SECONDS = "untrained", "seconds"
KEYS = ["recipe", "seed", "settings", "classes", "ranked_by"]
UNSEEN = ("run", "data_dir")  # by the digest of a run
FILES = ("weights", "mean_image")  # whose digest has no paths


def recalls(ks):
    return [f"recall@{k}" for k in ks]


def levels_of(recipe):
    """Embeddings of each image, of which an ensemble is weighed; without importing the loss."""
    base = recipe.loss_options.get("base", recipe.loss)
    options = base if isinstance(base, dict) else recipe.loss_options
    cascade = "hdc" in (base, options.get("name"))
    return recipe.levels or options.get("levels") or (3 if cascade else 1)


def digest(recipe, level_weights):
    """Of the settings of a run, without defaults; of files, whether they are given.

    Level weights count where the recipe has as many levels.
    """
    if level_weights and len(level_weights) != levels_of(recipe):
        level_weights = None
    given = {
        field.name: value
        for field in dataclasses.fields(recipe)
        if (value := getattr(recipe, field.name)) != field.default and field.name not in UNSEEN
    }
    given |= dict.fromkeys(given.keys() & set(FILES), True)
    text = json.dumps([given, level_weights], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def given_path(text):
    """The path of a flag, whose `~` is the home folder."""
    return pathlib.Path(os.path.expanduser(text))


def path_of(run, kind):
    return RUNS / run / f"{kind}.json"


def written_at(path):
    """What `train.py` or `evaluate.py` wrote, or an empty dict."""
    return json.loads(read_text(path)) if path.exists() else {}


def rows_of(run, **keys):
    """A row for each ranking: each level of several, their distances, a learned similarity."""
    results = written_at(path_of(run, "scores"))
    whole = results["train_seconds_from_step"] == 0
    of_run = {UNTRAINED: results[UNTRAINED][RECALL_AT_1]}
    of_run |= {SECONDS: results["train_seconds"]} if whole else {}
    rows = {}
    for rank_by in (BY_DISTANCE, BY_SIMILARITY):
        if content := written_at(path_of(run, rank_by)):
            rows |= content.get("levels", {}) if rank_by == BY_DISTANCE else {}
            rows[rank_by] = content["scores"] | content.get("distances", {}) | of_run
    if content := written_at(path_of(run, TRAIN_CLASSES)):
        rows[BY_DISTANCE][TRAIN_CLASSES] = content["scores"][RECALL_AT_1]
    keys["classes"] = results["scored_classes"]
    return [keys | {"ranked_by": ranked_by} | scores for ranked_by, scores in rows.items()]


def read(path):
    """The rows of a CSV file; none if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    if rows and not set(KEYS) <= set(rows[0]):
        raise ValueError(f"{path} must have the columns {KEYS}. Received: {list(rows[0])}")
    try:
        return [
            {
                name: int(text) if name == "seed" else text if name in KEYS else float(text)
                for name, text in row.items()
                if text
            }
            for row in rows
        ]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} must have numbers as scores: {error}") from None


def write(path, rows):
    names = list(dict.fromkeys(name for row in rows for name in row))
    with replacing(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, names, lineterminator="\n")
        table.writeheader()
        for row in sorted(rows, key=lambda row: (row["recipe"], row["seed"])):
            table.writerow({n: round(x, 6) if isinstance(x, float) else x for n, x in row.items()})


def table_of(rows, ks):
    """Markdown: a line per recipe and ranking, mean ± deviation over the seeds, in percent."""
    shown = [UNTRAINED, *recalls(ks), NMI, F1, TRAIN_CLASSES]
    heads = ["recipe", "ranked by", f"untrained {RECALL_AT_1}", *recalls(ks), "NMI", "F1"]
    heads += [f"train {RECALL_AT_1}", *DISTANCES.values(), "seconds", "runs"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    groups = {}
    for row in rows:
        groups.setdefault((row["recipe"], row["ranked_by"]), []).append(row)
    for names, of_seeds in groups.items():
        cells = [cell(of_seeds, name, 100, 1) for name in shown]
        cells += [cell(of_seeds, name, 1, 3) for name in DISTANCES]
        cells.append(cell(of_seeds, SECONDS, 1, 0).partition(" ")[0])
        lines.append(f"| {' | '.join([*names, *cells, str(len(of_seeds))])} |")
    scored = sorted({row["classes"] for row in rows})
    return f"Of the {' and '.join(scored)} classes.\n\n" + "\n".join(lines) + "\n"


def cell(rows, name, factor, digits):
    values = [factor * row.get(name, np.nan) for row in rows]
    mean = np.mean(values)
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return "–" if np.isnan(mean) else f"{mean:.{digits}f}{deviation}"


def plot_curves(names, path):
    """The loss of every recipe, as a share of its first value, over the intervals of the log.

    Args:
        names: {recipe: names of its runs}; those without a log here are left out.
        path: Path of the picture.
    """
    from matplotlib.figure import Figure

    curves = {}
    for recipe, runs in names.items():
        losses = [losses_of(RUNS / run / "logs" / "epochs.csv") for run in runs]
        if losses := [of_run for of_run in losses if of_run]:
            shortest = min(map(len, losses))
            curves[recipe] = np.mean([of_run[:shortest] for of_run in losses], axis=0)
    if not curves:
        return
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for recipe, mean in curves.items():
        axes.plot(np.arange(1, len(mean) + 1), mean / mean[0], label=recipe)
    axes.set(
        title="Training loss, mean over the seeds",
        xlabel="checkpoint interval",
        ylabel="loss / loss of the first interval",
    )
    axes.legend()
    figure.savefig(path)


def losses_of(log):
    """The losses of a log; none if it does not exist."""
    if not log.exists():
        return []
    with log.open(newline="", encoding="utf-8") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]
