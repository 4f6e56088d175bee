"""Writes the report: checks and gathers its content and fills in the page."""

import base64
import hashlib
import html
import json
import pathlib
import re
import string
import warnings

import numpy as np

from tfdml.checks import check, check_number, check_positive, check_type
from tfdml.evaluation import inputs
from tfdml.evaluation.exact.neighbours import distances_to, nearest_neighbours
from tfdml.evaluation.report import charts
from tfdml.evaluation.report.histograms import distance_histograms
from tfdml.evaluation.report.pictures import check_image_names
from tfdml.evaluation.report.planar_map import planar_map
from tfdml.evaluation.report.thumbnails import thumbnails
from tfdml.evaluation.retrieval import recall_at_k
from tfdml.evaluation.statistics import class_averages
from tfdml.files import replacing

_NEIGHBOURS = 10
_MOST_CONFUSIONS = 30
_CURVE = 100  # largest K of the recall curve
_FINEST = ("map@r", "map", "r_precision", "mrr")  # orders queries better than a recall of 0 or 1


def write_report(
    embeddings,
    labels,
    folder,
    *,
    title,
    scores,
    per_query,
    picture_of,
    facts=None,
    intervals=None,
    class_names=None,
    image_names=None,
    untrained=None,
    neighbours=None,
    megabytes=10,
    seed=0,
):
    """Writes a report of an embedding: one HTML file, which works offline.

    It shows the scores, the curve of Recall@K, the distances of positive and negative pairs, a
    t-SNE map of the images, queries with their nearest neighbours, the classes most often confused,
    and a table of the classes. Everything that is only a sample is marked as such.

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised.
        labels: (n,) or (n, 1) integers of any size, one class id per row.
        folder: Folder of `index.html`; created if missing.
        title: Title of the page.
        scores: {name: number}; those named "recall@K" are marked on the curve.
        per_query: {name: (n,) values in [0, 1]}, one or more, such as "recall@1" and "map@r". They
            order the queries and are averaged by class.
        picture_of: Callable of a row number that returns its picture: (height, width) or
            (height, width, 1 or 3) uint8, of any size.
        facts: {word: text} on the origin of the scores: model, data, settings, versions.
        intervals: {name: (low, high)} of some of the scores.
        class_names: {class id: name}; missing classes are named by their ids.
        image_names: (n,) texts, such as paths, that name the pictures. Default: their row numbers.
        untrained: {name: number}, some of the scores before training, shown for comparison.
        neighbours: (n, K) row numbers, nearest first and without the row itself, as ranked by a
            learned similarity. Default: the 10 nearest by distance, and a curve up to Recall@100.
        megabytes: Largest size of the file, which determines that of the pictures. With tens of
            thousands of pictures the file may be larger, as each has at least about 32 x 32 pixels.
        seed: Seed of the random queries, and of the map and its sample.

    Returns:
        The `pathlib.Path` of the page.

    Raises:
        TypeError: If labels are not integers, embeddings not floats, `neighbours` not integers,
            pictures not uint8, `picture_of` not callable, or a score not a number.
        ValueError: If shapes disagree, a number is not finite or out of range, `per_query` is
            empty, or the numbers of names and images differ.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = write_report(
        ...         np.eye(3),
        ...         np.array([4, 4, 9]),
        ...         folder,
        ...         title="Three images",
        ...         scores={"recall@1": 2 / 3},
        ...         per_query={"recall@1": [1, 1, 0]},
        ...         picture_of=lambda row: np.full((8, 8), 100 * row, np.uint8),
        ...     )
        ...     print(page.name, "<h1>Three images</h1>" in page.read_text())
        index.html True
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    rows, facts, intervals = len(labels), dict(facts or {}), dict(intervals or {})
    _check_scores(scores, intervals)
    per_query = _checked_values(per_query, rows)
    check_type(callable(picture_of), "`picture_of` must be a callable", picture_of=picture_of)
    check_image_names(image_names, rows)
    check_positive(megabytes=megabytes)
    seed = inputs.whole_number(seed, "seed", at_least=0, below=2**32)
    nearest = _checked_neighbours(neighbours, embeddings)
    values, ids = np.unique(labels, return_inverse=True)
    names = [str((class_names or {}).get(label, label)) for label in values.tolist()]
    content = _content(embeddings, ids, names, per_query, nearest, seed)
    content["images"] = None if image_names is None else [str(name) for name in image_names]
    curve = _curve(embeddings, labels) if neighbours is None else {}
    texts = {
        "title": html.escape(str(title)),
        "summary": _summary(ids, names),
        "scores": _score_rows(scores, intervals, untrained or {}),
        "recall": _recall_figure(scores, intervals, curve),
        "facts": _fact_rows(facts),
        "distances": _distances_figure(embeddings, labels, ids),
    }
    room = 1e6 * megabytes - len(_page(texts, content))
    sheets = thumbnails(picture_of, rows, max(0.0, room) * 3 / 4, seed=seed)
    images = [base64.b64encode(image).decode("ascii") for image in sheets.images]
    page = _page(texts, {**content, "sheets": {**sheets._asdict(), "images": images}})
    path = pathlib.Path(folder) / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished:
        unfinished.write_bytes(page)
    return path


def _check_scores(scores, intervals):
    check_number(**{f"scores[{name!r}]": score for name, score in scores.items()})
    for name, interval in intervals.items():
        check(name in scores, "`intervals` must be of scores", name=name, scores=list(scores))
        ordered = len(interval) == 2 and interval[0] <= interval[1]
        check(ordered, f"`intervals[{name!r}]` must be (low, high)", interval=interval)


def _checked_values(per_query, rows):
    per_query = {name: np.asarray(values, np.float64) for name, values in per_query.items()}
    check(per_query, "`per_query` must hold the values of one score or more", per_query=per_query)
    for name, values in per_query.items():
        expectation = f"`per_query[{name!r}]` must have one value per row"
        check(values.shape == (rows,), expectation, shape=values.shape, rows=rows)
        outside = values[~((values >= 0) & (values <= 1))].tolist()
        expectation = f"`per_query[{name!r}]` must be in [0, 1]"
        check(not outside, expectation, first_outside=outside and outside[0])
    return per_query


def _checked_neighbours(neighbours, embeddings):
    """(n, K) row numbers; those of the nearest by distance if none are given."""
    rows = len(embeddings)
    if neighbours is None:
        most = min(_NEIGHBOURS, rows - 1)
        return nearest_neighbours(embeddings, most) if most else np.empty((1, 0), np.int64)
    neighbours = np.asarray(neighbours)
    dtype, shape = str(neighbours.dtype), neighbours.shape
    check_type(neighbours.dtype.kind in "iu", "`neighbours` must be integers", dtype=dtype)
    complete = neighbours.ndim == 2 and len(neighbours) == rows
    check(complete, "`neighbours` must have shape (n, K)", shape=shape, rows=rows)
    ends = {"least": int(neighbours.min(initial=0)), "largest": int(neighbours.max(initial=0))}
    exist = ends["least"] >= 0 and ends["largest"] < rows
    check(exist, "`neighbours` must be row numbers", **ends, rows=rows)
    own = np.flatnonzero((neighbours == np.arange(rows)[:, None]).any(axis=1)).tolist()
    check(not own, "`neighbours` must not hold the row itself", first_row=own and own[0])
    return neighbours.astype(np.int64)


def _content(embeddings, ids, names, per_query, neighbours, seed):
    """The data for the script of the page; arrays as base64 of little-endian numbers."""
    layout = planar_map(embeddings, seed=seed)
    order = [name for name in _FINEST if name in per_query] or list(per_query)
    means = {name: class_averages(values, ids)[1] for name, values in per_query.items()}
    return {
        "seed": seed,
        "classes": names,
        "ids": _packed(ids, "<u4"),
        "neighbours": _packed(neighbours, "<u4"),
        "distances": _packed(distances_to(embeddings, neighbours), "<f4"),
        "values": {name: _packed(values, "<f4") for name, values in per_query.items()},
        "order": order[0],
        "sizes": _packed(np.bincount(ids), "<u4"),
        "means": {name: _packed(of_classes, "<f4") for name, of_classes in means.items()},
        "confusions": confusions(ids, ids[neighbours[:, 0]]) if neighbours.size else [],
        "map": layout and _packed_map(layout),
    }


def _packed_map(layout):
    places = np.round(layout.places * (2**16 - 1))
    return {"rows": _packed(layout.rows, "<u4"), "places": _packed(places, "<u2")}


def confusions(ids, nearest):
    """Pairs of classes where queries of one have a nearest neighbour of the other.

    Args:
        ids: (n,) integers from 0, the classes of the queries.
        nearest: (n,) integers, the classes of their nearest neighbours.

    Returns:
        At most 30 lists [class, other class, queries], by descending number of queries, then by
        class.
    """
    wrong = ids != nearest
    pairs, counts = np.unique(np.stack([ids, nearest], axis=1)[wrong], axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_MOST_CONFUSIONS]
    return np.column_stack([pairs, counts])[order].tolist()


def _packed(array, dtype):
    with np.errstate(over="ignore"):  # a distance beyond float32 is shown as infinite
        return base64.b64encode(array.astype(dtype).tobytes()).decode("ascii")


def _page(texts, content):
    """The bytes of the page, with a policy that only allows its own parts to load and run."""
    folder, names = pathlib.Path(__file__).parent, ("report.css", "report.js", "template.html")
    style, script, template = ((folder / name).read_text("utf-8") for name in names)
    policy = (
        f"default-src 'none'; img-src blob:; style-src {_hash(style)}; "
        f"script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    data = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    parts = {**texts, "policy": policy, "style": style, "script": script, "data": data}
    page = string.Template(template).substitute(parts)
    # File names that are not UTF-8 have surrogates, which cannot be encoded.
    return page.encode("utf-8", "xmlcharrefreplace")


def _hash(text):
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"


def _summary(ids, names):
    single = int(np.count_nonzero(np.bincount(ids) == 1))
    images = f"{len(ids):,} {'image' if len(ids) == 1 else 'images'}"
    classes = f"{len(names):,} {'class' if len(names) == 1 else 'classes'}"
    alone = f"; {single:,} without another image of the same class, counted as misses"
    return f"{images} of {classes}{alone if single else ''}."


def _score_rows(scores, intervals, untrained):
    lines = []
    for name, score in scores.items():
        interval = intervals.get(name)
        limits = "" if interval is None else "{:.4f} to {:.4f}".format(*interval)
        bar = charts.score_bar(score, interval) if 0 <= score <= 1 else ""
        before = f"untrained {untrained[name]:.4f}" if name in untrained else ""
        lines.append(
            f'<tr><th scope="row">{html.escape(str(name))}</th><td>{score:.4f}</td>'
            f'<td class="interval">{limits}</td><td class="drawn">{bar}</td>'
            f'<td class="interval">{before}</td></tr>'
        )
    return "\n".join(lines)


def _curve(embeddings, labels):
    most = min(_CURVE, len(labels) - 1)
    if most < 1:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the summary states queries without positives
        return recall_at_k(embeddings, labels, k=range(1, most + 1))


def _recall_figure(scores, intervals, curve):
    shown = (name for name in scores if re.fullmatch(r"recall@[1-9]\d*", name))
    counts = {name: int(name[7:]) for name in shown if 0 <= scores[name] <= 1}
    marked = {count: float(scores[name]) for name, count in counts.items()}
    if len(marked.keys() | curve.keys()) < 2:
        return ""
    bars = {counts[name]: interval for name, interval in intervals.items() if name in counts}
    caption = "Recall@K: the share of queries with an image of their class among the K nearest."
    return _figure(charts.recall_chart(curve or marked, marked, bars), caption)


def _distances_figure(embeddings, labels, ids):
    if not 1 < int(ids.max()) + 1 < len(ids):
        return "<p>There are no pairs of both kinds.</p>"
    counted = distance_histograms(embeddings, labels)
    positive = f"{counted.positive_pairs:,} positive pairs, of one class"
    negative = f"{counted.negative_pairs:,} negative pairs, of two"
    drawn = f"; shown are {counted.sample:,} of each, drawn at random" if counted.sample else ""
    caption = f"Distances of all {positive}, and {negative}{drawn}."
    return _figure(charts.histogram_chart(counted), caption, "beside")


def _figure(drawing, caption, kind=""):
    return f'<figure class="{kind}">{drawing}<figcaption>{caption}</figcaption></figure>'


def _fact_rows(facts):
    rows = ([html.escape(str(cell)) for cell in fact] for fact in facts.items())
    return "\n".join(f"<div><dt>{word}</dt><dd>{text}</dd></div>" for word, text in rows)
