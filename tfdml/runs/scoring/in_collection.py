"""What images find in a collection that `tfdml.scale` embedded, as their gallery."""

from typing import Any, NamedTuple

import numpy as np

from tfdml import evaluation, scale
from tfdml.checks import check
from tfdml.runs.scoring.scored_images import files_of, warn_of_copies
from tfdml.serving.exported import fingerprint


class Searched(NamedTuple):
    """A collection in which images search."""

    gallery: Any  # `Gallery`
    own: Any  # (n, m) ids of the images that are in it themselves, -1 for none
    index: Any  # its `StoredIndex`; None for an exact search


def searching(options, model, images):
    """The `Images` that search in the gallery of the options: all, or the queries of a dataset."""
    collection, index = scale.Collection(options.gallery), None
    collection.check_model(fingerprint(model.version))
    if options.index:
        index = scale.StoredIndex(collection, parameters=options.index_parameters)
    split = images.split if images.queries is None else images.split.subset(images.queries)
    gallery = scale.Gallery(collection)
    expected = f"some of the classes must be labels of {options.gallery}"
    known = (gallery.classes_of(split.names) >= 0).any()
    check(known, expected, classes=len(split.names), first=split.names[0])
    own = _own(gallery, split)
    received = {"images": len(gallery), "to_find": gallery.most_found(own)}
    expected = f"the gallery {options.gallery} must have other images than the one that searches"
    check(received["to_find"], expected, **received)
    return images._replace(split=split, queries=None, collection=Searched(gallery, own, index))


def score_in_collection(embedded, options):
    """As `tasks.retrieval`."""
    images, (gallery, own, index) = embedded.images, embedded.images.collection
    texts = [*map(images.class_names.get, images.labels.tolist())]
    among = int((own >= 0).any(axis=1).sum())
    print(f"{among:,} of the {len(texts):,} images are in the gallery, by their files, and do not")
    print("find themselves", flush=True)
    queries, results = (embedded.embeddings, texts, options.k), {}
    if index is None:
        per_query = scale.retrieval_scores_per_query(gallery, *queries, own=own)
    else:
        found = scale.scores_through_index(gallery, index, *queries, own=own, seed=options.seed)
        per_query, results["through_index"] = found
    counts = {"queries": len(texts), "gallery": len(gallery)}
    return {**results, **averaged(per_query, images.labels, options.seed), "images": counts}


def averaged(per_query, labels, seed):
    """Scores, "intervals" at 95 % over classes, and "macro", the means over classes."""
    average = evaluation.macro_average
    results = {
        "scores": {name: float(values.mean()) for name, values in per_query.items()},
        "macro": {name: average(values, labels) for name, values in per_query.items()},
        "per_query": per_query,
    }
    if len(set(labels.tolist())) > 1:
        results["intervals"] = evaluation.bootstrap_intervals(per_query, labels, seed=seed)
    return results


def _own(gallery, split):
    """(n, m) ids of the images in the gallery, by their files, -1 for none; warns of copies."""
    files, folder = files_of(split), gallery.collection.folder
    if files is not None:
        warn_of_copies(files, gallery.paths(), f"images of the gallery {folder}")
        return gallery.ids_of(files)
    return np.full((len(split.labels), 1), -1)
