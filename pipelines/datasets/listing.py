"""Makes a dataset of a list of labelled images, with checks of everything in it."""

import dataclasses
import os
import sys
import warnings
from typing import Any

import numpy as np

from pipelines.augmentation import Augmentation
from pipelines.boxes import check_inside, cut_to_images
from pipelines.split import Dataset, Split
from pipelines.verification import find_unreadable
from tfdml.checks import check
from tfdml.files import identity

PARTS = ("train", "test", "gallery")  # caches number them in this order
IMAGE_SIZE = (224, 224, 3)
# A crop of 224 of 256 pixels, as in the papers, is this share of the area.
AUGMENTATION = Augmentation(crop=(224 / 256) ** 2, flip=True)


@dataclasses.dataclass(frozen=True, repr=False)
class Listing(Split):
    """Images in the order of a list: a `Split` whose files and boxes are yet to be checked.

    Args:
        parts: (n,) words of `PARTS`: the split of each image.
    """

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


def dataset_of(
    name,
    listing,
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
    """Checks a list and returns its dataset.

    Args:
        name: Of the dataset.
        listing: `Listing`.
        skip_invalid: As for `pipelines.load`; also only warns of other counts than published.
        training: As for `pipelines.load`.
        where: End of the error of missing images, which says where to get them.
        counts: {part: (images, classes)} as published; None, for all or one number, allows any.
        check_files: Whether to check that every file exists and, with `skip_invalid`, can be read.
        exact_boxes: Whether a box beyond its image is an error; if not, it is clipped.
        image_size: Default (height, width, channels) of the dataset.
        augmentation: Default `Augmentation` of the dataset.
    """
    _check_counts(name, listing, counts or {}, skip_invalid)
    needed_parts = ["train", "test", *["gallery"] * ("gallery" in listing.parts)]
    if check_files and listing.holds_paths:
        listing = _without_missing(listing, skip_invalid, where)
        listing = without_repeated(listing, skip_invalid)
        if skip_invalid:
            listing = _without_unreadable(listing)
    if training and listing.labels.ndim == 1:
        listing = without_single(listing, skip_invalid)
    for part in needed_parts:
        needed = f"dataset {name!r} must have training and test images, and those of its gallery"
        check(part in listing.parts, needed, **{part: 0})
    if listing.boxes is not None and exact_boxes:
        check_inside(listing)
    elif listing.boxes is not None:
        boxes = cut_to_images(listing.images, listing.boxes)
        listing = dataclasses.replace(listing, boxes=boxes)
    return Dataset(name, image_size=image_size, augmentation=augmentation, **listing.splits())


def _check_counts(name, listing, counts, skip_invalid):
    different = []
    for part, expected in counts.items():
        labels = listing.labels[listing.parts == part]
        found = len(labels), len(np.unique(labels))
        if any(want not in (None, have) for want, have in zip(expected, found, strict=True)):
            published = f"{_in_words(*expected)} are published"
            different.append(f"{part}: {_in_words(*found)} where {published}")
    sentence = f"dataset {name!r} differs from the published one ({'; '.join(different)})"
    if different and not skip_invalid:
        advice = "get them again, or accept them with skip_invalid=True, on the command line"
        raise ValueError(
            f"{sentence}. Its lists are cut off or of another release: {advice} --skip_invalid true"
        )
    if different:
        sentence += ": its scores are not comparable"
        warn(Invalid(sentence, "other counts than published", different))


def _in_words(*counts):
    images, classes = ("any" if count is None else f"{count:,}" for count in counts)
    return f"{images} images of {classes} classes"


def _without_missing(listing, skip_invalid, where):
    missing = np.array([not os.path.isfile(path) for path in listing.images])
    paths, what = listing.images[missing].tolist(), "images that are missing"
    leave_out(what, paths, skip_invalid, FileNotFoundError, where, len(missing))
    return listing.subset(~missing)


def _without_unreadable(listing):
    unreadable = find_unreadable(listing.images)
    found = [f"{listing.images[row]} ({reason})" for row, reason in unreadable.items()]
    leave_out("images that cannot be read", found, skip_invalid=True)
    return listing.subset(~np.isin(np.arange(len(listing.images)), list(unreadable)))


def without_repeated(listing, skip_invalid):
    """The list without the images whose file it has before, by that path or another."""
    first, paths = {}, listing.images.tolist()
    rows = np.array([first.setdefault(identity(path), row) for row, path in enumerate(paths)])
    repeated = np.flatnonzero(rows < np.arange(len(rows))).tolist()
    found = [f"{paths[row]} (as {paths[rows[row]]})" for row in repeated]
    leave_out("images that are files listed before", found, skip_invalid)
    return listing.subset(~np.isin(np.arange(len(rows)), repeated))


def without_single(listing, skip_invalid):
    """The list without the training classes that have a single image."""
    _, inverse, counts = np.unique(listing.labels, return_inverse=True, return_counts=True)
    single = (listing.parts == "train") & (counts < 2)[inverse]
    what = "training classes with a single image, which has no positive pair"
    names, labels = listing.class_names or {}, listing.labels[single].tolist()
    leave_out(what, [names.get(label, str(label)) for label in labels], skip_invalid)
    return listing.subset(~single)


def numbered(words):
    """Ids of words, (n,) int64, and {id: word}.

    Ids are the values of the words if all are integers, otherwise their places in sorted order.
    """
    names = sorted(set(words))
    values = map(int, names) if all(map(_is_id, names)) else range(len(names))
    ids = dict(zip(names, values, strict=True))
    return np.array([ids[word] for word in words], np.int64), {ids[name]: name for name in names}


def _is_id(word):
    digits = word.removeprefix("-")
    return digits.isdecimal() and str(int(word)) == word and abs(int(word)) < 2**63


def first_half(labels):
    """(n,) parts: `train` for the first half of the classes by id, rounded down, else `test`."""
    classes = np.unique(labels)
    return np.where(np.isin(labels, classes[: len(classes) // 2]), "train", "test")


def leave_out(what, items, skip_invalid, error: type[Exception] = ValueError, where="", total=None):
    """Raises an error that lists items, or warns that they are left out; does nothing if none.

    `what` describes the items, `where` is appended to that in the error; of `total` looked at.
    """
    count = f"{len(items)} of {total}" if total else f"{len(items)}"
    sentence = f"{count} {what}: {first_five(items)}"
    if items and not skip_invalid:
        advice = "Repair them, or leave them out with skip_invalid=True, on the command line"
        raise error(f"{sentence}{where}. {advice} --skip_invalid true")
    if items:
        warn(Invalid(f"left out {sentence}", what, items))


def warn(warning):
    """Warns of the line outside of this package, and of TensorFlow, that led here."""
    level = 1
    while sys._getframe(level).f_globals["__name__"].split(".")[0] in ("pipelines", "tensorflow"):
        level += 1
    warnings.warn(warning, stacklevel=level + 1)


class Invalid(UserWarning):
    """Warning of what is an error without `skip_invalid`, listed in `items`."""

    def __init__(self, sentence, what, items):
        super().__init__(sentence)
        self.what, self.items = what, items


def first_five(items):
    return ", ".join(items[:5]) + (", ..." if len(items) > 5 else "")
