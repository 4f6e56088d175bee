"""The task `audit`: findings as a table of corrections and as a page of pictures."""

import base64
import html
import io
import pathlib

import numpy as np

from pipelines.corrections import EXCLUDE, RELABEL, write_corrections
from tfdml import evaluation
from tfdml.evaluation.findings import FINDINGS, NEAREST
from tfdml.evaluation.metrics import read
from tfdml.evaluation.report.thumbnails import picture_at
from tfdml.files import replacing

_SHOWN, _SIDE = 24, 200  # findings of a kind on the page, pixels of their pictures
_SURE = 0.35  # of a duplicate, from which leaving it out is suggested
_LEFT_OUT = ("leak", "duplicate")
_EXPLAINED = {
    "leak": "Pictures that are in two splits: leave out that of the training.",
    "duplicate": "Pictures that are there twice: leave out the later one.",
    "label": "Images that look like another class than their own: beside each the nearest of it.",
    "outlier": "Images that are far from all others.",
    "merge": "Classes that look like one: an image of each.",
    "split": "Classes that look like two: an image of either part.",
    "size": "Classes with fewer than 3 images, or with many more than the others.",
}
_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Audit</title><style>
body { font: 16px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem }
section > div { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, 27rem) }
figure { margin: 0 } img { max-width: 13rem; max-height: 13rem; vertical-align: top }
figcaption { font-size: 0.8rem; overflow-wrap: anywhere }
</style></head><body><h1>Audit</h1>
"""


def audit_images(embedded, options):
    """{"scores", "findings": counts by kind, "found": `Finding`s}; writes the corrections."""
    rows, labels, images = embedded.embeddings, embedded.labels, embedded.images
    most = min(NEAREST, len(labels) - 1)
    ranking = evaluation.rank(rows, labels, nearest=most, depth=1)
    groups = images.dataset.places if images.dataset and options.split == "all" else None
    found = evaluation.audit(rows, labels, groups=groups, ranking=ranking)
    path = pathlib.Path(options.out).with_suffix(".csv")
    write_corrections(path, _lines(found, images, options))
    print(f"Findings: {path}")
    kept = np.ones(len(labels), bool)
    kept[[each.row for each in found if _is_left_out(each)]] = False
    scores = {"recall@1": float(read(ranking, "recall", 1).mean())}
    if kept.all():
        scores["recall@1 without duplicates"] = scores["recall@1"]
    elif kept.sum() > 1:
        recall = evaluation.recall_at_k(rows[kept], labels[kept], k=1)[1]
        scores["recall@1 without duplicates"] = recall
    counts = {kind: sum(each.finding == kind for each in found) for kind in FINDINGS}
    return {"scores": scores, "findings": counts, "found": found}


def _is_left_out(finding):
    return finding.finding in _LEFT_OUT and finding.score >= _SURE


def _lines(found, images, options):
    ids, names = images.ids(options), images.class_names
    for each in found:
        suggestion = "look"
        if _is_left_out(each):
            suggestion = EXCLUDE
        elif each.finding == "label":
            suggestion = f"{RELABEL}{names[each.label]}"
        elif each.finding == "merge":
            suggestion = f"merge with {names[each.label]}"
        other = ids[each.other] if each.other >= 0 else ""
        yield ids[each.row], each.finding, f"{each.score:.4f}", suggestion, other


def write_page(found, images, options, picture):
    """Writes `index.html`, with pictures of the surest findings of each kind; returns its path."""
    ids, names, labels = images.ids(options), images.class_names, images.labels.tolist()

    def described(row):
        return html.escape(f"{names[labels[row]]}: {ids[row]}")

    def figure(row):
        buffer = io.BytesIO()
        picture_at(picture, row, _SIDE).save(buffer, "WebP", quality=70)
        source = base64.b64encode(buffer.getvalue()).decode("ascii")
        words = described(row)
        return f'<img src="data:image/webp;base64,{source}" alt="{words}" title="{words}">'

    parts = [_HEAD]
    for kind in FINDINGS:
        some = [each for each in found if each.finding == kind]
        parts.append(f"<section><h2>{kind} ({len(some):,})</h2><p>{_EXPLAINED[kind]}</p><div>")
        for each in some[:_SHOWN]:
            rows = [row for row in (each.row, each.other) if row >= 0]
            shown = "".join(map(figure, rows))
            caption = f"{each.score:.3f} {'; '.join(map(described, rows))}"
            parts.append(f"<figure>{shown}<figcaption>{caption}</figcaption></figure>")
        parts.append("</div></section>")
    path = pathlib.Path(options.report, "index.html")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished:
        unfinished.write_bytes("\n".join([*parts, "</body></html>"]).encode("utf-8", "replace"))
    return path
