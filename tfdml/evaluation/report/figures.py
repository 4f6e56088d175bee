"""Figures of pairs and of retrievals, written to images."""

import numpy as np
from matplotlib.figure import Figure

from tfdml.evaluation import inputs
from tfdml.evaluation.levels import split_levels
from tfdml.evaluation.nearest_mean import unit_rows
from tfdml.evaluation.pair_scores import equal_error_rate, sample_pairs
from tfdml.evaluation.ranking import rank
from tfdml.evaluation.report.thumbnails import picture_at

_RIGHT, _WRONG = "tab:green", "tab:red"
_PAIRS = 10_000  # of each kind
_QUERIES, _FOUND = 4, 8
_SIDE = 512  # pixels of an image at most
_SHOWN = 20  # characters shown of the name of an image, from its end


def plot_score_distributions(embeddings, labels, path, *, similarity, levels=1, seed=0):
    """Plots histograms of scores of random pairs: learned, and of the distance, also at each level.

    As Figure 1(b) of Huang et al. (NIPS 2016) and Figure 4 of Yuan et al. (ICCV 2017).
    """
    drawn = sample_pairs(labels, _PAIRS, seed=seed)
    plotted = [("learned similarity", embeddings, similarity)] if similarity else []
    plotted.append(("Euclidean distance", embeddings, None))
    if levels > 1:
        for number, level in enumerate(split_levels(embeddings, levels), start=1):
            plotted.append((f"distance at level {number}", unit_rows(level), None))
    figure = Figure(figsize=(5 * len(plotted), 4), layout="constrained")
    cells = figure.subplots(1, len(plotted), squeeze=False)[0]
    for axes, (name, rows, score) in zip(cells, plotted, strict=True):
        sign = 1 if score else -1  # similar pairs have large scores and small distances
        score = score or (lambda a, b: np.linalg.norm(a.astype(np.float64) - b, axis=1))
        pairs = [(rows[kind[:, 0]], rows[kind[:, 1]], (len(kind),)) for kind in drawn]
        values = [inputs.scores_of(score, *pair) for pair in pairs]
        shares = [np.full(len(kind), 1 / len(kind)) for kind in values]
        looks = {"label": ["positive", "negative"], "color": [_RIGHT, _WRONG], "alpha": 0.6}
        axes.hist(values, 50, weights=shares, histtype="stepfilled", **looks)
        error = equal_error_rate(*(sign * kind for kind in values))
        title = f"{name}: equal error rate {error:.1%}"
        axes.set(title=title, xlabel=name, ylabel="share of the pairs")
        axes.legend(reverse=True)
    figure.savefig(path)
    return figure


def plot_retrievals(picture_of, embeddings, labels, path, *, similarity, names, seed=0):
    """Draws random queries and their nearest images, as Figure 4 of Huang et al. (NIPS 2016)."""
    count, top = min(_QUERIES, len(labels)), min(_FOUND, len(labels) - 1)
    rows = np.random.default_rng(seed).choice(len(labels), count, replace=False)
    options = {"similarity": similarity, "nearest": top, "depth": 0, "own": rows}
    ranking = rank(embeddings[rows], labels[rows], embeddings, labels, **options)
    figure = Figure(figsize=(1.3 * (top + 1), 1.6 * count), layout="constrained")
    grid = figure.subplots(count, top + 1, squeeze=False)
    for axes, query, *found in zip(grid, rows, ranking.nearest, ranking.distances, strict=True):
        _draw_image(axes[0], picture_of, query, "black", "-", names)
        axes[0].set_xlabel("query", fontsize="small")
        for cell, row, score in zip(axes[1:], *found, strict=True):
            frame = (_RIGHT, "-") if labels[row] == labels[query] else (_WRONG, "--")
            _draw_image(cell, picture_of, row, *frame, names)
            distance = f"D {np.linalg.norm(embeddings[row] - embeddings[query]):.2f}"
            numbers = f"S {score:#.3g}  {distance}" if similarity else distance
            cell.set_xlabel(numbers, fontsize="small")
    meaning = "S: learned similarity, " if similarity else ""
    meaning += "D: Euclidean distance, green: of the query's class"
    figure.supxlabel(meaning, fontsize="small")
    figure.savefig(path)
    return figure


def plot_reliability(reliability, path):
    """Plots what `reliability` returns beside the diagonal; returns the path."""
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    axes.axline((0, 0), slope=1, color="tab:gray", linestyle="--")
    axes.plot(reliability["probability"], reliability["right"], "o-")
    title = f"expected calibration error {reliability['ece']:.3f}"
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", title=title)
    axes.set(xlabel="probability of known and right", ylabel="share of known and right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path


def _draw_image(axes, picture_of, row, color, line, names):
    axes.imshow(np.asarray(picture_at(picture_of, row, _SIDE)), cmap="gray", vmin=0, vmax=255)
    axes.set(xticks=[], yticks=[])
    axes.set_title(names[row][-_SHOWN:], fontsize=5, parse_math=False)
    for spine in axes.spines.values():
        spine.set(edgecolor=color, linewidth=3, linestyle=line)
