"""What images find in a collection that `tfdml.scale` embedded, as their gallery."""

import dataclasses
import warnings
from typing import Any

import tfdml
from tfdml.checks import check
from tfdml.runs.scoring.images import Scored, files_of, names_of, warn_of_copies
from tfdml.serving.exported import fingerprint

STORED = "stored"  # `index` of the index in the folder of the gallery


@dataclasses.dataclass(frozen=True)
class Queries(Scored):
    """Images that search in a gallery."""

    gallery: Any  # `tfdml.scale.evaluation.Gallery`
    own: Any  # (n, m) ids of the images that are in it themselves, -1 for none
    index: Any  # its `StoredIndex`; None for an exact search


def queries_of(settings, model, images):
    """The `Queries`, with the gallery of the settings opened.

    All images search, or the queries of a dataset with a gallery of its own.

    Raises:
        ValueError: If another model made the embeddings of the gallery, shards or labels are
            missing, no image could be read, none of the classes is there, an image finds itself
            alone, or there is no index and one is asked for.
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
    own = _own(gallery, split)
    received = {"images": len(gallery), "to_find": gallery.most_found(own)}
    expected = f"the gallery {settings.gallery} must have other images than the one that searches"
    check(received["to_find"], expected, **received)
    return Queries(split, None, images.dataset, gallery, own, index)


def score_in_collection(settings, model, images):
    """As `Retrieval.score`, of `Queries`."""
    from tfdml.scale import evaluation

    split, gallery = images.split, images.gallery
    embeddings, names = model.embed_joined(settings, split), names_of(split)
    texts = [names[label] for label in split.labels.tolist()]
    queries, own = (embeddings, texts, settings.k), images.own
    among = int((own >= 0).any(axis=1).sum())
    print(f"{among:,} of the {len(texts):,} images are in the gallery, by their files, and do not")
    print("find themselves", flush=True)
    if images.index is None:
        per_query = evaluation.retrieval_scores_per_query(gallery, *queries, own=own)
        results = {}
    else:
        rest = {"own": own, "seed": settings.seed}
        found = evaluation.scores_through_index(gallery, images.index, *queries, **rest)
        per_query, results = found[0], {"through_index": found[1]}
    results |= averaged(per_query, split.labels, settings.seed)
    results["images"] = {"queries": len(split.labels), "gallery": len(gallery)}
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


def _own(gallery, split):
    """(n, m) ids of the images in the gallery, found by their files, -1 where they are not in it.

    Warns of images that have the content of another file of the gallery.
    """
    import numpy as np

    files, folder = files_of(split), gallery.collection.folder
    if files is None:
        if split.holds_records:
            warnings.warn(
                "the cache does not state the files that it was made of, so that images that are "
                f"in the gallery {folder} find themselves: write the cache again",
                stacklevel=2,
            )
        return np.full((len(split.labels), 1), -1)
    warn_of_copies(files, gallery.paths(), f"images of the gallery {folder}")
    return gallery.ids_of(files)
