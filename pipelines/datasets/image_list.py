"""Makes a dataset of a list of labelled images, with checks of everything in it."""

import dataclasses
import os
from typing import Any

import numpy as np

from pipelines.boxes import cut_to_images
from pipelines.invalid import Invalid, leave_out
from pipelines.preprocessing import Augmentation
from pipelines.split import Dataset, Split
from pipelines.unreadable import unreadable
from tfdml.checks import check
from tfdml.files import identity
from tfdml.images.image_files import is_utf8
from tfdml.quiet import warn

PARTS = ("train", "test", "gallery")  # in the order of `Dataset.splits`, as caches number them
# Words of a folder, a file or a column -> part, validation images to be tested on or trained on.
WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val"}
WORDS |= {"test": "test", "query": "test", "gallery": "gallery"}
IMAGE_SIZE = (224, 224, 3)
# A crop of 224 of 256 pixels, as in the papers, is this share of the area.
AUGMENTATION = Augmentation(crop=(224 / 256) ** 2, flip=True)


@dataclasses.dataclass(frozen=True, repr=False)
class ImageList(Split):
    """A `Split` whose files and boxes are yet to be checked, and `parts`, (n,) words of `PARTS`."""

    parts: Any = None

    def __post_init__(self):
        for name in ("images", "labels", "super_labels", "boxes", "parts"):
            if getattr(self, name) is not None:
                vars(self)[name] = np.asarray(getattr(self, name))

    def splits(self):
        """{part: `Split`} of the parts that have images."""
        splits = {}
        for part in PARTS:
            if part in self.parts:
                rows = vars(self.subset(self.parts == part))
                splits[part] = Split(**{name: rows[name] for name in rows if name != "parts"})
        return splits

    def without(self, rows):
        """The list without some rows, given by their numbers."""
        return self.subset(~np.isin(np.arange(len(self.labels)), list(rows)))

    def without_repeated(self, skip_invalid):
        """The list without the images whose file it has before, by that path or another."""
        first, paths = {}, self.images.tolist()
        boxes = [None] * len(paths) if self.boxes is None else map(tuple, self.boxes.tolist())
        keys = enumerate(zip(map(identity, paths), boxes, strict=True))
        rows = [first.setdefault(key, row) for row, key in keys]
        repeated = {row: paths[other] for row, other in enumerate(rows) if other < row}
        found = [f"{paths[row]} (as {other})" for row, other in repeated.items()]
        leave_out("images that are files listed before", found, skip_invalid)
        return self.without(repeated)

    def without_single(self, skip_invalid):
        """The list without the training classes that have a single image."""
        _, inverse, counts = np.unique(self.labels, return_inverse=True, return_counts=True)
        single = (self.parts == "train") & (counts < 2)[inverse]
        what = "training classes with a single image, which has no positive pair"
        names, labels = self.class_names or {}, self.labels[single].tolist()
        leave_out(what, [names.get(label, str(label)) for label in labels], skip_invalid)
        return self.subset(~single)


def checked_dataset(
    name,
    images,
    skip_invalid,
    training,
    *,
    where="",
    counts=None,
    check_files=True,
    exact_boxes=False,
    image_size=IMAGE_SIZE,
    augmentation=AUGMENTATION,
):
    """The `Dataset` of an `ImageList`; `skip_invalid` and `training` as for `pipelines.load`.

    `where` ends the error of missing images; `counts` are {part: (images, classes)} as published,
    None for any. Without `exact_boxes` a box beyond its image is clipped, not an error.
    """
    _check_counts(name, images, counts or {}, skip_invalid)
    needed_parts = ["train", "test", *["gallery"] * ("gallery" in images.parts)]
    if check_files and images.holds_paths:
        paths, total = images.images.tolist(), len(images.labels)
        fits = [is_utf8(path) and os.path.isfile(path) for path in paths]
        lost = [path for path, fit in zip(paths, fits, strict=True) if not fit]
        what = "images that are missing, or whose name is not UTF-8"
        leave_out(what, lost, skip_invalid, FileNotFoundError, where, total)
        images = images.subset(fits).without_repeated(skip_invalid)
        if skip_invalid:
            reasons = dict(unreadable(images.images))
            found = [f"{images.images[row]} ({reason})" for row, reason in reasons.items()]
            leave_out("images that cannot be read", found, skip_invalid)
            images = images.without(reasons)
    if training and images.labels.ndim == 1:
        images = images.without_single(skip_invalid)
    for part in needed_parts:
        needed = f"dataset {name!r} must have training and test images, and those of its gallery"
        check(part in images.parts, needed, **{part: 0})
    if images.boxes is not None:
        boxes = cut_to_images(images.images, images.boxes, exact_boxes)
        images = dataclasses.replace(images, boxes=boxes)
    return Dataset(name, image_size=image_size, augmentation=augmentation, **images.splits())


def _check_counts(name, images, counts, skip_invalid):
    different = []
    for part, published in counts.items():
        labels = images.labels[images.parts == part]
        found = {"images": len(labels), "classes": len(np.unique(labels))}
        different += [
            f"{part}: {number:,} {what} where {expected:,} are published"
            for (what, number), expected in zip(found.items(), published, strict=True)
            if expected not in (None, number)
        ]
    sentence = f"dataset {name!r} differs from the published one ({'; '.join(different)})"
    if different and not skip_invalid:
        advice = "get them again, or accept them with skip_invalid=True, on the command line"
        raise ValueError(
            f"{sentence}. Its lists are cut off or of another release: {advice} --skip_invalid true"
        )
    if different:
        sentence += ": its scores are not comparable"
        warn(Invalid(sentence, "other counts than published", different))


def numbered(words):
    """Ids of words, their values if all are integers, else places in order, and {id: word}."""
    names = sorted(set(words))
    values = map(int, names) if all(map(_is_id, names)) else range(len(names))
    ids = dict(zip(names, values, strict=True))
    return np.array([ids[word] for word in words], np.int64), {ids[name]: name for name in names}


def _is_id(word):
    digits = word.removeprefix("-")
    return digits.isdecimal() and str(int(word)) == word and abs(int(word)) < 2**63


def parts_of(words, labels=None):
    """(n,) parts by `WORDS`; given labels, and where classes to train on are tested too, halves.

    Validation images are tested on if there are no others for it, else trained on.
    """
    parts = np.array([WORDS[word] for word in words], object)
    parts[parts == "val"] = "train" if "test" in parts else "test"
    trained = parts == "train"
    if labels is not None and (trained.all() or np.isin(labels[trained], labels[~trained]).any()):
        warn(
            "no classes are of testing alone, or some of both parts: the first half of them trains"
        )
        return first_half(labels)
    return parts.astype(str)


def first_half(labels):
    """(n,) parts: `train` for the first half of the classes by id, rounded down, else `test`."""
    classes = np.unique(labels)
    return np.where(np.isin(labels, classes[: len(classes) // 2]), "train", "test")
