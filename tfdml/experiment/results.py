"""The results of a table: a CSV file, a table in Markdown with paired tests, and a figure."""

import csv
import io
import json

import numpy as np
from scipy.stats import wilcoxon

from tfdml.checks import check
from tfdml.evaluation.comparison import load_queries, paired_bootstrap
from tfdml.experiment.trainings import BY_DISTANCE
from tfdml.files import read_text, replacing, write_text
from tfdml.runs.folders import RUNS

RESULTS = "results.csv"
KEYS = ("row", "trial", "fold", "seed", "setting", "digest", "classes", "ranked_by")
ABSOLUTE = ("positive", "negative", "lda")  # statistics of distances, not shares
TEXTS = (*KEYS, "run", "commit", "versions")


def read(path):
    """The lines of a CSV file of results, numbers as such; none if it does not exist."""
    if not path.exists():
        return []
    lines = list(csv.DictReader(io.StringIO(read_text(path))))
    missing = set(KEYS) - set(lines[0]) if lines else set()
    check(not missing, f"{path} must have the columns of results", missing=sorted(missing))
    return [
        {name: text if name in TEXTS else float(text) for name, text in line.items() if text}
        for line in lines
    ]


def write(path, lines):
    """Writes lines of results as CSV."""
    names = list(dict.fromkeys([*KEYS, *(name for line in lines for name in line)]))
    last = [name for name in ("seconds", "commit", "versions") if name in names]
    names = [name for name in names if name not in last] + last
    text = io.StringIO()
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    for line in lines:
        table.writerow(
            {n: float(f"{x:.6g}") if isinstance(x, float) else x for n, x in line.items()}
        )
    write_text(path, text.getvalue())


def write_results(table, rows):
    """Writes what is done so far: results.csv, table.md and results.png. Returns the table."""
    folder = RUNS / table.name
    compared, lines = differences(table, rows), []
    for row in rows:
        for line in row.lines():
            to_compare = "run" in line and line["ranked_by"] == BY_DISTANCE
            lines.append({**line, **(compared.get(row.name, {}) if to_compare else {})})
    write(folder / RESULTS, lines)
    lines = read(folder / RESULTS)
    text = table_of(table, lines)
    write_text(folder / "table.md", text)
    if final := scored(lines):
        plot(table, final, folder / "results.png")
    return text


def scored(lines):
    """The lines of trainings on all training classes."""
    return [line for line in lines if line.get("fold", "") == ""]


def differences(table, rows):
    """{row: its difference to the baseline} in the first score, of means over the seeds.

    The interval is of a bootstrap over whole classes, p of Wilcoxon's signed-rank test over the
    means of classes, times Holm's factor.
    """
    score, baseline = table.score[0], table.baseline or next(iter(table.rows))
    queries = {row.name: of for row in rows if (of := _queries(row, score)) is not None}
    if baseline not in queries:
        return {}
    (values, labels), found = queries.pop(baseline), {}
    for name, (own_values, own_labels) in queries.items():
        if np.array_equal(labels, own_labels):
            [compared] = paired_bootstrap({score: own_values}, {score: values}, labels).values()
            found[name] = {**compared, "p": _p_value(own_values - values, labels)}
    for name, p in zip(found, holm([of["p"] for of in found.values()]), strict=True):
        found[name]["p"] = p
    return found


def holm(p_values):
    """The p-values of several tests, corrected so that one error among them is as likely as p."""
    order, count = np.argsort(p_values), len(p_values)
    factors = count - np.arange(count)
    corrected = np.empty(count)
    corrected[order] = np.minimum(1, np.maximum.accumulate(factors * np.take(p_values, order)))
    return corrected.tolist()


def _p_value(values, labels):
    """That of the hypothesis that the mean differences of classes are symmetric around 0."""
    _, classes = np.unique(labels, return_inverse=True)
    means = np.bincount(classes, values) / np.bincount(classes)
    return float(wilcoxon(means).pvalue) if np.any(means) else 1.0


def _queries(row, score):
    """Mean values of a score over the seeds, and labels; None before all are done."""
    runs = {line["run"] for line in row.lines() if "run" in line}
    if len(runs) < len(row.table.seeds):
        return None
    archives = [load_queries(RUNS / run / f"{BY_DISTANCE}_queries.npz") for run in sorted(runs)]
    check(score in archives[0].values, f"`score` {score!r} has no values of queries")
    return np.mean([each.values[score] for each in archives], axis=0), archives[0].labels


def table_of(table, lines):
    """Markdown: a line per row, setting and ranking, mean ± deviation over the seeds."""
    lines = scored(lines)
    if not lines:
        return "No row has scores yet.\n"
    several = len({line["ranked_by"] for line in lines}) > 1
    heads = ["row", "ranked by", "setting", "untrained", *table.score, "difference", "p", "seeds"]
    body = [
        [
            f"`{name}`",
            ranked_by if several else "",
            setting_in_words(group[0]["setting"]),
            mean(group, "untrained"),
            *(mean(group, score) for score in table.score),
            _difference(group[0]),
            f"{group[0]['p']:.2g}" if "p" in group[0] else "",
            str(len(group)),
        ]
        for (name, _, ranked_by), group in _groups(table, lines).items()
    ]
    used = [i for i, _ in enumerate(heads) if any(cells[i] not in ("", "–") for cells in body)]
    return markdown([[cells[i] for i in used] for cells in (heads, *body)])


def markdown(rows):
    """A table in Markdown, of the cells of its head and of its rows."""
    head, *texts = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([head, "|---" * len(rows[0]) + "|", *texts]) + "\n"


def _groups(table, lines):
    """{(row, setting, ranking): lines of its seeds}, in the order of the table."""
    places = {name: place for place, name in enumerate(table.rows)}
    groups = {}
    for line in sorted(lines, key=lambda line: places[line["row"]]):
        groups.setdefault((line["row"], line["setting"], line["ranked_by"]), []).append(line)
    return groups


def mean(lines, name):
    """Mean ± deviation of a score over the seeds, as text; of shares in percent."""
    factor, digits = (1, 3) if name.partition("_")[0] in ABSOLUTE else (100, 1)
    values = [factor * line.get(name, np.nan) for line in lines]
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return "–" if np.isnan(np.mean(values)) else f"{np.mean(values):.{digits}f}{deviation}"


def setting_in_words(text):
    setting = json.loads(text)
    given = {name: value for name, value in setting.items() if value is not None}
    return ", ".join(f"{name.removeprefix('loss_options.')} {of}" for name, of in given.items())


def _difference(line):
    """A difference in percent and its interval."""
    if "difference" not in line:
        return ""
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(
        *(100 * line[name] for name in ("difference", "low", "high"))
    )


def plot(table, lines, path):
    """The first score of each row: a point per seed, and their mean."""
    from matplotlib.figure import Figure

    groups = [
        (name, of)
        for (name, _, ranked_by), of in _groups(table, lines).items()
        if ranked_by == BY_DISTANCE
    ]
    figure = Figure(figsize=(8, 1.5 + 0.3 * len(groups)), layout="constrained")
    axes = figure.subplots()
    for place, (_, group) in enumerate(groups):
        values = [100 * line[table.score[0]] for line in group]
        axes.plot(values, [place] * len(values), "o", color="tab:blue", alpha=0.5)
        axes.plot(np.mean(values), place, "|", color="black", markersize=14)
    axes.set_yticks(range(len(groups)), [name for name, _ in groups])
    axes.invert_yaxis()
    axes.set_xlabel(f"{table.score[0]}, %")
    with replacing(path) as unfinished:
        figure.savefig(unfinished, format=path.suffix[1:])
