"""Scores without the images whose picture is there twice."""

import numpy as np

import pipelines
from pipelines.duplicates import find_duplicates
from tfdml import evaluation


def scores_without_copies(embedded, options):
    """{"copies": number of images}, and of some "scores", {name: value} of the others by distance.

    Copies show the picture of an earlier image, or of one of the training split, where that is not
    scored itself; in a gallery count before queries. None if the images are not in files.
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
    rows, labels = embedded.embeddings[kept], embedded.labels[kept]
    queries = None if queries is None else queries[kept]
    counts = {"copies": int((~kept).sum())}
    searched = kept.sum() > 1 if queries is None else 0 < queries.sum() < len(queries)
    if kept.all() or not searched:
        return counts
    most = pipelines.rows_to_find(split.subset(kept), queries)
    data, gallery = evaluation.apart(rows, labels, queries)
    kind = {"k": [k for k in options.counts if k <= most] or [1]}
    return counts | {"scores": evaluation.retrieval_scores(*data, **kind, **gallery)}
