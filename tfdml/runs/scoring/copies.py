"""Scores without the images whose picture is there twice."""

import numpy as np

import pipelines
from pipelines.duplicates import find_duplicates
from tfdml import evaluation


def scores_without_copies(embedded, options):
    """{"copies": number of images}, and of some "scores", {name: value} of the others by distance.

    Copies show the picture of an earlier image, or of one of the training split, where that is not
    scored itself; in a gallery count before queries. Images whose class has no other image left are
    left out too. None if the images are not in files.
    """
    images, split = embedded.images, embedded.images.split
    if not split.holds_paths or split.holds_records:
        return None
    queries, paths = images.queries, split.images
    order = np.arange(len(paths)) if queries is None else np.argsort(queries, kind="stable")
    earlier = paths[:0]
    if images.dataset and options.split not in ("train", "all"):
        earlier = images.dataset.train.images
    looked_at = np.concatenate([earlier, paths[order]])
    copies = [row for row, finding, *_ in find_duplicates(looked_at) if finding != "odd"]
    kept = ~np.isin(paths, looked_at[copies])
    counts = {"copies": int((~kept).sum())}
    every = np.ones(len(kept), bool)
    found = [_can_be_found(embedded.labels, queries, among) for among in (every, kept)]
    kept &= found[1] | ~found[0]
    rows, labels = embedded.embeddings[kept], embedded.labels[kept]
    queries = None if queries is None else queries[kept]
    searched = len(labels) > 1 if queries is None else 0 < queries.sum() < len(queries)
    if not (counts["copies"] and searched):
        return counts
    most = pipelines.rows_to_find(split.subset(kept), queries)
    data, gallery = evaluation.apart(rows, labels, queries)
    kind = {"k": [k for k in options.counts if k <= most] or [1]}
    return counts | {"scores": evaluation.retrieval_scores(*data, **kind, **gallery)}


def _can_be_found(labels, queries, among):
    """(n,) booleans: whether there is another image of its class among these; true in a gallery."""
    if queries is None:
        classes, sizes = np.unique(labels[among], return_counts=True)
        return np.isin(labels, classes[sizes > 1])
    return ~queries | np.isin(labels, labels[among & ~queries])
