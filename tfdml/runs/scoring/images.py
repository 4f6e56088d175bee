"""The images that are scored."""

import dataclasses
import os
import warnings
from typing import Any

import pipelines
from tfdml.command_line import program_name
from tfdml.files import copies
from tfdml.runs.images import warn_of_trained
from tfdml.serving import exported


@dataclasses.dataclass(frozen=True)
class Scored:
    """Images to score.

    Args:
        split: `Split`; of a dataset with a gallery, queries and gallery.
        queries: (n,) booleans, which rows are queries; None where all find each other.
        dataset: `Dataset` that they belong to.
    """

    split: Any
    queries: Any
    dataset: Any


def load_images(settings, model):
    """The `Scored` images; warns of classes that the model was trained on, unless asked for."""
    options = {"skip_invalid": settings.skip_invalid, "boxes": settings.boxes}
    training = settings.split in ("train", "validation")
    dataset = pipelines.load(settings.dataset, settings.data_dir, training=training, **options)
    dataset.train.check_one_label(f"images to score by {program_name('evaluate')}")
    split, queries = _chosen(settings, model, dataset)
    if settings.task != "retrieval":
        queries = None
    same_images = model.recipe.get("dataset") == settings.dataset and settings.split != "train"
    of_dataset = exported.trained_classes(model.version) if same_images else []
    warn_of_trained("evaluate", of_dataset, split)
    if files := files_of(split):
        warn_of_copies(files, files, "images to score")
    return Scored(split, queries, dataset)


def training_split(settings, model, dataset) -> Any:
    """The images of the training classes, to calibrate by.

    None if they are not at hand, or fewer than two have two images.
    """
    if not model.was_trained_on(settings) or settings.split in ("train", "all"):
        return None
    import numpy as np

    _, classes, counts = np.unique(dataset.train.labels, return_inverse=True, return_counts=True)
    if (counts > 1).sum() < 2:
        return None
    trained = dataset.train.subset(counts[classes] > 1)  # as `skip_invalid` leaves the others out
    dataset = dataclasses.replace(dataset, train=trained)
    return _chosen(dataclasses.replace(settings, split="train"), model, dataset)[0]


def _chosen(settings, model, dataset):
    if settings.split in ("train", "validation"):
        split, share = dataset.train, model.recipe.get("validation_share", 0)
        if share:
            split = pipelines.hold_out_classes(split, share)[settings.split == "validation"]
        return split, None
    if settings.split == "all":
        return dataset.both(), None
    return dataset.scored()


def files_of(split):
    """The files of the images, of a cache those that it was made of; None if it states none."""
    if split.holds_records:
        from pipelines.datasets.cache import sources_of  # which waits for NumPy

        return sources_of(split.images)
    return split.images.tolist() if split.holds_paths else None


def warn_of_copies(files, others, what):
    """Warns of others that have the content of another file, with their number and an example."""
    found = list(copies(files, others))
    if found:
        path, other = found[0]
        sentence = f"{len(found):,} {what} have the content of another file, such as {other} and"
        warnings.warn(f"{sentence} {path}: they count as images of their own", stacklevel=2)


def ids_of(settings, split):
    """A text for each image: its path in the folder of the dataset or CSV file, or its number."""
    if not split.holds_paths:
        return [str(row) for row in range(len(split.labels))]
    folder = os.path.expanduser(settings.data_dir)
    folder = os.path.dirname(folder) if os.path.isfile(folder) else folder
    return [os.path.relpath(path, folder) for path in split.images]


def names_of(split):
    """{class id: name} of the classes of the images."""
    return dict(zip(sorted(set(split.labels.tolist())), split.names, strict=True))


def has_pairs_of_both_kinds(labels):
    return 1 < len(set(labels.tolist())) < len(labels)
