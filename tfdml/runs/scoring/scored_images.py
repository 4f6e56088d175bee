"""The images that are scored."""

import dataclasses
import hashlib
import os
import warnings
from itertools import filterfalse
from typing import Any, NamedTuple

import numpy as np

import pipelines
from pipelines.datasets.cached import sources_of
from tfdml.checks import check
from tfdml.files import copies, folder_of
from tfdml.runs.recipe import FEATURES
from tfdml.runs.run_images import warn_of_trained
from tfdml.runs.task_options import OF_FILES


class Images(NamedTuple):
    """Images to score."""

    split: Any  # `Split`; of a dataset with a gallery, queries and gallery
    queries: Any = None  # (n,) booleans, which rows search the others; None if all find each other
    dataset: Any = None  # `Dataset` that they belong to
    collection: Any = None  # `Searched`, where they find others than these
    hierarchy: Any = None  # parents of the classes; those of `queries` are unseen

    @property
    def labels(self):
        return self.split.labels

    @property
    def class_names(self):
        """{class id: name}, all classes of the images."""
        return dict(zip(self.split.classes.tolist(), self.split.names, strict=True))

    def ids(self, options):
        """A text for each: its path in the folder of the dataset or CSV file, or its number."""
        if not self.split.holds_paths:
            return [str(row) for row in range(len(self.labels))]
        if options.data_dir is None:
            return self.split.images.tolist()
        folder = folder_of(options.data_dir)
        return [os.path.relpath(path, folder) for path in self.split.images]

    def identity(self, options):
        """{name: text or None} that tells them from others."""
        split, ids = self.split, self.ids(options)
        if split.holds_records or options.model is None:
            content = "\0".join(ids).encode()
        elif split.holds_paths:
            sizes = [str(os.path.getsize(path)) for path in split.images]
            content = "\0".join([*ids, *sizes]).encode()
        else:
            content = np.ascontiguousarray(split.images).data
        return {
            "dataset": options.dataset,
            "split": options.split,
            "classes": hashlib.sha256("\0".join(split.names).encode()).hexdigest(),
            "content": hashlib.sha256(content).hexdigest(),
        }


def load_images(options, model):
    """The `Images`; warns of classes that the model was trained on, unless asked for."""
    if model.version is None:
        return _stored_images(model.stored, options)
    expectation = "`dataset` must be of images; features are scored by `evaluate.py --embeddings`"
    check(not options.dataset.startswith(FEATURES), expectation, dataset=options.dataset)
    kept = {name: getattr(options, name) for name in ("skip_invalid", *OF_FILES)}
    kept["training"] = options.split in ("train", "validation")
    dataset = pipelines.load(options.dataset, options.data_dir, **kept)
    dataset.train.check_one_label("images to score by tfdml-evaluate")
    split, queries = _chosen(options.split, model, dataset)
    images = Images(split, queries if options.task == "retrieval" else None, dataset)
    if options.task == "audit":  # which finds what the warnings are of
        return images
    if model.recipe.get("dataset") == options.dataset and options.split != "train":
        warn_of_trained("evaluate", model.metadata.get("trained_classes") or [], split)
    if files := files_of(split):
        warn_of_copies(files, files, "images to score")
    return images


def files_of(split):
    """The files of the images, of a cache those that it was made of; None of images in memory."""
    if split.holds_records:
        return sources_of(split.images)
    return split.images.tolist() if split.holds_paths else None


def warn_of_copies(files, others, what):
    """Warns of others that have the content of another file, with their number and an example."""
    found = list(copies(files, others))
    if found:
        path, other = found[0]
        sentence = f"{len(found):,} {what} have the content of another file, such as {other} and"
        warnings.warn(f"{sentence} {path}: they count as images of their own", stacklevel=2)


def _stored_images(stored, options):
    """The `Images` of a file of embeddings, of which it has at most the names."""
    classes, labels = np.unique(stored.labels, return_inverse=True)
    names = dict(enumerate(classes.tolist())) if classes.dtype.kind == "U" else None
    ids = np.arange(len(labels)).astype(str) if stored.ids is None else stored.ids
    split = pipelines.Split(ids, stored.labels if names is None else labels, names)
    retrieval = options.task == "retrieval"
    if options.report and options.task in ("retrieval", "audit"):
        lost = next(filterfalse(os.path.isfile, ids.tolist()), None)
        expectation = (
            f"`report` needs `ids` in `embeddings` that are paths of images; {lost!r} is none"
        )
        options.check(lost is None, expectation)
    return Images(split, stored.queries if retrieval else None)


def training_split(options, model, dataset) -> Any:
    """The images of the training classes; None if not at hand, or fewer than two have two."""
    if not (dataset and model.was_trained_on(options)) or options.split in ("train", "all"):
        return None
    _, classes, counts = np.unique(dataset.train.labels, return_inverse=True, return_counts=True)
    if (counts > 1).sum() < 2:
        return None
    trained = dataset.train.subset(counts[classes] > 1)  # as `skip_invalid` leaves the others out
    return _chosen("train", model, dataclasses.replace(dataset, train=trained))[0]


def _chosen(name, model, dataset):
    if name in ("train", "validation"):
        split, share = dataset.train, model.recipe.get("validation_share", 0)
        held = pipelines.hold_out_classes(split, share) if share else (split,)
        return held[share > 0 and name == "validation"], None
    return (dataset.both(), None) if name == "all" else dataset.scored()
