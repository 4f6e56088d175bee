"""What images find in a collection that `tfdml.scale` embedded, as their gallery."""

import dataclasses
import os

import tfdml
from tfdml.checks import check
from tfdml.runs.scoring.images import ids_of, names_of
from tfdml.serving.exported import fingerprint

STORED = "stored"  # `index` of the index in the folder of the gallery


def images_in(folder):
    """The number of images of a collection."""
    from tfdml.scale.collection import Collection

    return Collection(folder).images


def queries_of(settings, model, images):
    """The images that search, all or the queries of a dataset with a gallery of its own.

    Raises:
        ValueError: If another model made the embeddings of the gallery, shards or labels are
            missing, none of the classes is there, or it has no index and one is asked for.
    """
    from tfdml.scale.collection import Collection
    from tfdml.scale.evaluation import Gallery
    from tfdml.scale.index import StoredIndex

    collection = Collection(settings.gallery)
    collection.check_model(fingerprint(model.version))
    if settings.index:
        StoredIndex(collection, parameters=settings.index_parameters)
    if images.queries is not None:
        images = dataclasses.replace(
            images, split=images.split.subset(images.queries), queries=None
        )
    names = images.split.names
    known = (Gallery(collection).classes_of(names) >= 0).any()
    expected = f"some of the classes must be labels of {settings.gallery}"
    check(known, expected, classes=len(names), first=names[0])
    return images


def score_in_collection(settings, model, images):
    """As `Retrieval.score`, in the gallery of the settings."""
    from tfdml.scale import evaluation
    from tfdml.scale.collection import Collection
    from tfdml.scale.index import StoredIndex

    split, gallery = images.split, evaluation.Gallery(Collection(settings.gallery))
    embeddings, names = model.embed_joined(settings, split), names_of(split)
    texts = [names[label] for label in split.labels.tolist()]
    given = gallery, embeddings, texts, settings.k
    own = _own(gallery, settings, split)
    if settings.index:
        index = StoredIndex(gallery.collection, parameters=settings.index_parameters)
        rest = {"own": own, "seed": settings.seed}
        per_query, compared = evaluation.scores_through_index(gallery, index, *given[1:], **rest)
        results = {"through_index": compared}
    else:
        per_query, results = evaluation.retrieval_scores_per_query(*given, own=own), {}
    average, labels = tfdml.evaluation.macro_average, split.labels
    results |= {
        "scores": {name: float(values.mean()) for name, values in per_query.items()},
        "macro": {name: average(values, labels) for name, values in per_query.items()},
        "per_query": per_query,
        "images": {"queries": len(labels), "gallery": gallery.collection.images},
        "embeddings": embeddings,
    }
    if len(names) > 1:
        intervals = tfdml.evaluation.bootstrap_intervals(per_query, labels, seed=settings.seed)
        results["intervals"] = intervals
    return results


def _own(gallery, settings, split):
    """(n,) ids of the images in the gallery, found by their paths, -1 where they are not in it."""
    if not split.holds_paths or split.holds_records:
        return None
    paths = [str(path) for path in split.images]
    own = gallery.ids_of(paths)
    absolute, real = ([of(path) for path in paths] for of in (os.path.abspath, os.path.realpath))
    for others in (absolute, real, ids_of(settings, split)):
        missing = own < 0
        own[missing] = gallery.ids_of(others)[missing]
    return own
