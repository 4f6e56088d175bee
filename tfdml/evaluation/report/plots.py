"""Plots of scores, written to images."""

import numpy as np
from matplotlib.figure import Figure

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.levels import split_levels
from tfdml.evaluation.nearest_mean import unit_rows
from tfdml.evaluation.pairs import equal_error_rate, sample_pairs
from tfdml.evaluation.report.pictures import picture_at

_RIGHT, _WRONG = "tab:green", "tab:red"
_ROWS_AT_ONCE = 1024  # passed to a similarity
_SIDE = 512  # pixels of an image at most
_SHOWN = 20  # characters shown of the name of an image, from its end


def plot_score_distributions(
    embeddings, labels, path, *, similarity, levels=1, pairs=10_000, seed=0
):
    """Plots histograms of the scores of positive and negative pairs.

    One plot for the learned similarity, if any, one for the distance, and one for the distance at
    each level of several, each with two histograms of shares of the pairs, in the same bins. The
    titles give the equal error rate of the sampled pairs: the less the histograms overlap, the
    lower.

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised.
        labels: (n,) or (n, 1) integers, one class id per row.
        path: Path of the image, such as `scores.png`.
        similarity: Callable of rows (i, dim) and (i, dim), i at most 1,024, that returns the (i,)
            scores of the pairs, larger for more similar pairs. An example is a `PDDM` layer. None
            plots only distances.
        levels: Number of equal parts of the embeddings, those of the exits of a network. The
            distance at a level is that of rows scaled to unit length.
        pairs: Number of pairs of each kind, drawn at random.
        seed: Seed of the pairs.

    Returns:
        The matplotlib figure.

    Raises:
        TypeError: If labels are not integers, embeddings not floats or `similarity` not callable.
        ValueError: If shapes disagree, rows or scores are not finite, there are no pairs of one
            kind, or an option is out of range.

    Source:
        Huang, Loy, Tang. Local similarity-aware deep feature embedding. NIPS 2016, Figure 1(b);
        Yuan, Yang, Zhang. Hard-aware deeply cascaded embedding. ICCV 2017, Figure 4.
    """
    inputs.check_callable_or_none(similarity=similarity)
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    drawn = sample_pairs(labels, pairs, seed=seed)
    plotted = [("Euclidean distance", embeddings, None)]
    if similarity is not None:
        plotted.insert(0, ("learned similarity", embeddings, similarity))
    if levels > 1:
        for number, level in enumerate(split_levels(embeddings, levels), start=1):
            plotted.append((f"distance at level {number}", unit_rows(level), None))
    figure = Figure(figsize=(5 * len(plotted), 4), layout="constrained")
    cells = figure.subplots(1, len(plotted), squeeze=False)[0]
    for axes, (name, rows, score) in zip(cells, plotted, strict=True):
        values = [_pair_scores(rows, kind, score) for kind in drawn]
        sign = -1 if score is None else 1  # similar pairs have small distances and large scores
        bins = np.histogram_bin_edges(np.concatenate(values), bins=50)
        styles = ("positive", _RIGHT), ("negative", _WRONG)
        for of_kind, (label, color) in zip(values, styles, strict=True):
            shares = np.full(len(of_kind), 1 / len(of_kind))
            axes.hist(of_kind, bins, weights=shares, alpha=0.6, label=label, color=color)
        error = equal_error_rate(*(sign * of_kind for of_kind in values))
        title = f"{name}: equal error rate {error:.1%}"
        axes.set(title=title, xlabel=name, ylabel="share of the pairs")
        axes.legend()
    figure.savefig(path)
    return figure


def plot_retrievals(
    images, embeddings, labels, path, *, similarity, queries=4, top=8, names=None, seed=0
):
    """Draws a few queries and their nearest images by a learned similarity or by distance.

    One row per query: its image, then the images found, best first, in solid green frames if of its
    class and in dashed red ones if not. Below each are its score S, if there is a similarity, and
    its Euclidean distance D.

    Args:
        images: The n images, (height, width, 3) or (height, width) uint8 arrays, or a callable that
            reads the image of a row number.
        embeddings: (n, dim) floats, finite; taken as given: not normalised.
        labels: (n,) or (n, 1) integers, one class id per row.
        path: Path of the image, such as `retrievals.png`.
        similarity: Callable of rows (i, dim) and (j, dim), j at most 1,024, that returns their
            (i, j) scores, larger for nearer rows. An example is `PDDM.matrix`. None ranks by
            distance.
        queries: Number of random queries, or their row numbers.
        top: Number of images per query; at most n - 1 are shown.
        names: (n,) texts, such as paths, whose last 20 characters are shown above the images.
        seed: Seed of the random queries.

    Returns:
        The matplotlib figure.

    Raises:
        TypeError: If labels are not integers, embeddings not floats, images not uint8 or
            `similarity` not callable.
        ValueError: If shapes disagree, rows or scores are not finite, the numbers of images and
            rows differ, or an option is out of range.

    Source:
        Huang, Loy, Tang. Local similarity-aware deep feature embedding. NIPS 2016, Figure 4.
    """
    inputs.check_callable_or_none(similarity=similarity)
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    count = len(labels) if callable(images) else len(images)
    expectation = "`images` must be a callable or one image per row"
    check(count == len(labels), expectation, images=count, rows=len(labels))
    rows = _query_rows(queries, len(labels), seed)
    top = min(inputs.whole_number(top, "top", at_least=1), len(labels) - 1)
    scores = _scores(embeddings, rows, similarity or _nearness)
    figure = Figure(figsize=(1.3 * (top + 1), 1.6 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), top + 1, squeeze=False)
    for axes, query, row_scores in zip(grid, rows, scores, strict=True):
        _draw_image(axes[0], images, query, "black", "-", names)
        axes[0].set_xlabel("query", fontsize="small")
        found = np.argsort(-row_scores, kind="stable")[:top]
        for cell, row in zip(axes[1:], found, strict=True):
            right = labels[row] == labels[query]
            _draw_image(cell, images, row, *((_RIGHT, "-") if right else (_WRONG, "--")), names)
            numbers = f"D {np.linalg.norm(embeddings[row] - embeddings[query]):.2f}"
            if similarity is not None:
                numbers = f"S {row_scores[row]:#.3g}  {numbers}"
            cell.set_xlabel(numbers, fontsize="small")
    meaning = "" if similarity is None else "S: learned similarity, "
    meaning += "D: Euclidean distance, green: of the query's class"
    figure.supxlabel(meaning, fontsize="small")
    figure.savefig(path)
    return figure


def _pair_scores(embeddings, pairs, similarity):
    """(n,) float64: similarities, or distances without one, of (n, 2) row numbers."""
    blocks = []
    for first in range(0, len(pairs), _ROWS_AT_ONCE):
        a, b = (embeddings[rows] for rows in pairs[first : first + _ROWS_AT_ONCE].T)
        if similarity is None:
            blocks.append(np.linalg.norm(a.astype(np.float64) - b, axis=1))
        else:
            blocks.append(inputs.scores_of(similarity, a, b, (len(a),)))
    return np.concatenate(blocks)


def _scores(embeddings, rows, similarity):
    """(i, n) scores of the given rows to all; -inf to themselves."""
    blocks = [embeddings[i : i + _ROWS_AT_ONCE] for i in range(0, len(embeddings), _ROWS_AT_ONCE)]
    asked = embeddings[rows]
    of_blocks = (inputs.scores_of(similarity, asked, b, (len(rows), len(b))) for b in blocks)
    scores = np.concatenate(list(of_blocks), axis=1)
    scores[np.arange(len(rows)), rows] = -np.inf
    return scores


def _nearness(a, b):
    return -np.linalg.norm(a[:, None].astype(np.float64) - b, axis=2)


def _query_rows(queries, count, seed):
    """The given row numbers, or random ones of the given number."""
    if np.iterable(queries):
        rows = np.asarray(list(queries))
        valid = rows.size and rows.dtype.kind in "iu" and rows.min() >= 0 and rows.max() < count
        check(valid, "`queries` must be row numbers", queries=queries, rows=count)
        return rows
    queries = min(inputs.whole_number(queries, "queries", at_least=1), count)
    seed = inputs.whole_number(seed, "seed", at_least=0)
    return np.random.default_rng(seed).choice(count, queries, replace=False)


def _draw_image(axes, images, row, color, line, names):
    picture = picture_at(images if callable(images) else images.__getitem__, row, "images")
    picture.thumbnail((_SIDE, _SIDE), reducing_gap=2)
    axes.imshow(np.asarray(picture), cmap="gray", vmin=0, vmax=255)
    axes.set(xticks=[], yticks=[])
    if names is not None:
        axes.set_title(names[row][-_SHOWN:], fontsize=5, parse_math=False)
    for spine in axes.spines.values():
        spine.set(edgecolor=color, linewidth=3, linestyle=line)
