"""What images find in a collection that `tfdml.scale` embedded, as their gallery."""

import dataclasses
import os
from typing import Any

import tfdml
from tfdml.checks import check
from tfdml.runs.scoring.images import Scored, ids_of, names_of
from tfdml.serving.exported import fingerprint

STORED = "stored"  # `index` of the index in the folder of the gallery


@dataclasses.dataclass(frozen=True)
class Queries(Scored):
    """Images that search in a gallery."""

    gallery: Any  # `tfdml.scale.evaluation.Gallery`
    index: Any  # its `StoredIndex`; None for an exact search


def queries_of(settings, model, images):
    """The `Queries`, with the gallery of the settings opened.

    All images search, or the queries of a dataset with a gallery of its own.

    Raises:
        ValueError: If another model made the embeddings of the gallery, shards or labels are
            missing, none of the classes is there, or it has no index and one is asked for.
    """
    from tfdml.scale.collection import Collection
    from tfdml.scale.evaluation import Gallery
    from tfdml.scale.index import StoredIndex

    collection, index = Collection(settings.gallery), None
    collection.check_model(fingerprint(model.version))
    if settings.index:
        index = StoredIndex(collection, parameters=settings.index_parameters)
    split = images.split if images.queries is None else images.split.subset(images.queries)
    gallery = Gallery(collection)
    known = (gallery.classes_of(split.names) >= 0).any()
    expected = f"some of the classes must be labels of {settings.gallery}"
    check(known, expected, classes=len(split.names), first=split.names[0])
    return Queries(split, None, images.dataset, gallery, index)


def score_in_collection(settings, model, images):
    """As `Retrieval.score`, of `Queries`."""
    from tfdml.scale import evaluation

    split, gallery = images.split, images.gallery
    embeddings, names = model.embed_joined(settings, split), names_of(split)
    texts = [names[label] for label in split.labels.tolist()]
    queries, own = (embeddings, texts, settings.k), _own(gallery, settings, split)
    among = 0 if own is None else int((own >= 0).sum())
    print(f"{among:,} of the {len(texts):,} images are in the gallery, by their paths, and do not")
    print("find themselves", flush=True)
    if images.index is None:
        per_query = evaluation.retrieval_scores_per_query(gallery, *queries, own=own)
        results = {}
    else:
        rest = {"own": own, "seed": settings.seed}
        found = evaluation.scores_through_index(gallery, images.index, *queries, **rest)
        per_query, results = found[0], {"through_index": found[1]}
    results |= averaged(per_query, split.labels, settings.seed)
    results["images"] = {"queries": len(split.labels), "gallery": gallery.collection.images}
    return {**results, "embeddings": embeddings}


def averaged(per_query, labels, seed):
    """Scores, "intervals" at 95 % over classes, and "macro", the means over classes."""
    average = tfdml.evaluation.macro_average
    results = {
        "scores": {name: float(values.mean()) for name, values in per_query.items()},
        "macro": {name: average(values, labels) for name, values in per_query.items()},
        "per_query": per_query,
    }
    if len(set(labels.tolist())) > 1:
        results["intervals"] = tfdml.evaluation.bootstrap_intervals(per_query, labels, seed=seed)
    return results


def _own(gallery, settings, split):
    """(n,) ids of the images in the gallery, found by their paths, -1 where they are not in it."""
    import numpy as np

    if not split.holds_paths or split.holds_records:
        return None
    paths = [str(path) for path in split.images]
    absolute, real = ([of(path) for path in paths] for of in (os.path.abspath, os.path.realpath))
    own = gallery.ids_of([*paths, *absolute, *real, *ids_of(settings, split)]).reshape(4, -1)
    return own[(own >= 0).argmax(axis=0), np.arange(len(paths))]
