"""Writes the report: gathers its content and fills in the page."""

import base64
import hashlib
import html
import json
import pathlib
import re
import string
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from sklearn.manifold import TSNE

from tfdml.evaluation.metrics import read
from tfdml.evaluation.report.charts import histogram_chart, recall_chart
from tfdml.evaluation.report.thumbnails import thumbnails
from tfdml.evaluation.tiles import squared_distances
from tfdml.files import replacing

_MOST_BYTES = 10**7  # of the page, which determine the size of its pictures
_CURVE = 100  # largest K of the recall curve
_BYTES_OF_PLACE = 11  # 8 bytes as base64
_ITERATIONS = 500  # of the map; as many more lower its divergence by 2 %
_MOST_ROWS = 2000  # a map of so many takes seconds
_FEWEST_ROWS = 5
_JITTER = 1e-6  # of the largest difference: equal rows do not hide each other


def write_report(
    embeddings,
    labels,
    folder,
    *,
    title,
    scores,
    per_query,
    picture_of,
    ranking,
    neighbours=None,
    facts=None,
    intervals=None,
    class_names=None,
    image_names=None,
    untrained=None,
    without_copies=None,
    seed=0,
):
    """Writes a report of an embedding as `index.html` in a folder; returns its path.

    It has at most 10 MB, unless tens of thousands of small pictures need more. `ranking` is of all
    rows by distance, to rank 100 or deeper, with nearest rows and a histogram; `neighbours`, (n, K)
    row numbers, are those of a learned similarity in their place. `per_query` orders the queries;
    `facts` are on the origin of the scores. Other arguments are those of `write_projector`.
    """
    rows, intervals, class_names = len(labels), intervals or {}, class_names or {}
    curve, distances = {}, ranking.distances
    if neighbours is None:
        neighbours, counts = ranking.nearest, range(1, min(_CURVE, rows - 1) + 1)
        curve = {k: float(read(ranking, "recall", k).mean()) for k in counts}
    else:
        query = np.repeat(np.arange(rows), neighbours.shape[1])
        squared = squared_distances(embeddings, query, embeddings, neighbours.reshape(-1))
        distances = np.sqrt(squared).reshape(neighbours.shape)
    classes, ids = np.unique(labels, return_inverse=True)
    content = {  # for the script of the page; arrays as base64 of little-endian numbers
        "classes": [str(class_names.get(label, label)) for label in classes.tolist()],
        "ids": _packed(ids, "<u4"),
        "images": None if image_names is None else [str(name) for name in image_names],
        "neighbours": _packed(neighbours, "<u4"),
        "distances": _packed(distances, "<f4"),
        "values": {name: _packed(values, "<f4") for name, values in per_query.items()},
        "seed": seed,
    }
    facts = [map(html.escape, map(str, fact)) for fact in (facts or {}).items()]
    texts = {
        "title": html.escape(str(title)),
        "summary": _summary(np.bincount(ids)),
        "scores": _score_rows(scores, intervals, untrained or {}, without_copies or {}),
        "recall": _recall_figure(scores, intervals, curve),
        "facts": "\n".join("<div><dt>{}</dt><dd>{}</dd></div>".format(*fact) for fact in facts),
        "distances": _distances_figure(ranking.histogram),
    }
    room = _MOST_BYTES - len(_page(texts, content)) - _BYTES_OF_PLACE * _MOST_ROWS
    with ThreadPoolExecutor(1) as pool:
        mapped = pool.submit(planar_map, embeddings, seed)
        sheets, images = thumbnails(picture_of, rows, max(0.0, room) * 3 / 4, seed=seed)
        placed, places = mapped.result()
    content["map"] = {"rows": _packed(placed, "<u4"), "places": _packed(65535 * places, "<u2")}
    images = [base64.b64encode(image).decode("ascii") for image in images]
    page = _page(texts, {**content, "sheets": {**sheets, "images": images}})
    path = pathlib.Path(folder) / "index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished:
        unfinished.write_bytes(page)
    return path


def planar_map(embeddings, seed=0):
    """At most 2,000 row numbers and their (m, 2) places in [0, 1]; none of < 5 or equal rows."""
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(embeddings))[:_MOST_ROWS])
    drawn = embeddings[rows].astype(np.float64)
    drawn /= np.abs(drawn).max() or 1.0
    drawn -= drawn[0]
    largest = np.abs(drawn).max()
    if len(rows) < _FEWEST_ROWS or not largest:
        return rows[:0], drawn[:0, :0]
    drawn = np.pad(drawn / largest, ((0, 0), (0, 1)))  # to two columns or more
    drawn += _JITTER * rng.normal(size=drawn.shape)
    perplexity = min(30, (len(rows) - 1) / 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        options = {"init": "pca", "max_iter": _ITERATIONS, "random_state": seed}
        places = TSNE(perplexity=perplexity, **options).fit_transform(drawn)
    low, high = places.min(axis=0).astype(np.float64), places.max(axis=0)
    places = places - (low + high) / 2
    return rows, 0.5 + places / ((high - low).max() or 1.0)


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


def _summary(sizes):
    images, classes, single = int(sizes.sum()), len(sizes), np.count_nonzero(sizes == 1)
    text = f"{images:,} image{'s' * (images != 1)} of {classes:,} class{'es' * (classes != 1)}"
    alone = f"; {single:,} without another image of the same class, counted as misses"
    return f"{text}{alone if single else ''}."


def _score_rows(scores, intervals, untrained, without_copies):
    lines = []
    for name, score in scores.items():
        interval = "{:.4f} to {:.4f}".format(*intervals[name]) if name in intervals else ""
        others = {"untrained": untrained, "without copies": without_copies}
        beside = [f"{word} {each[name]:.4f}" for word, each in others.items() if name in each]
        bar = f'<meter value="{score:.4f}"></meter>' if 0 <= score <= 1 else ""
        lines.append(
            f'<tr><th scope="row">{html.escape(str(name))}</th><td>{score:.4f}</td>'
            f'<td class="interval">{interval}</td><td class="drawn">{bar}</td>'
            f'<td class="interval">{", ".join(beside)}</td></tr>'
        )
    return "\n".join(lines)


def _recall_figure(scores, intervals, curve):
    shown = (name for name in scores if re.fullmatch(r"recall@[1-9]\d*", name))
    counts = {name: int(name[7:]) for name in shown if 0 <= scores[name] <= 1}
    marked = {count: float(scores[name]) for name, count in counts.items()}
    if len(marked.keys() | curve.keys()) < 2:
        return ""
    bars = {counts[name]: interval for name, interval in intervals.items() if name in counts}
    caption = "Recall@K: the share of queries with an image of their class among the K nearest."
    return _figure(recall_chart(curve or marked, marked, bars), caption)


def _distances_figure(histogram):
    positive, negative = histogram.positive.sum(), histogram.negative.sum()
    if not (positive and negative):
        return "<p>There are no pairs of both kinds.</p>"
    kinds = f"{positive:,} positive pairs, of one class, and {negative:,} negative pairs, of two"
    return _figure(histogram_chart(histogram), f"Distances of all {kinds}.", "beside")


def _figure(drawing, caption, kind=""):
    return f'<figure class="{kind}">{drawing}<figcaption>{caption}</figcaption></figure>'
