"""Makes a dataset of a list of labelled images, with checks of everything in it."""

import dataclasses
import os
import warnings
from typing import Any

import numpy as np

from pipelines.augmentation import Augmentation
from pipelines.boxes import check_inside, cut_to_images
from pipelines.split import Dataset, Split

PARTS = ("train", "test", "gallery")
IMAGE_SIZE = (224, 224, 3)
# A crop of 224 of 256 pixels, as in the papers, is this share of the area.
AUGMENTATION = Augmentation(crop=(224 / 256) ** 2, flip=True)


@dataclasses.dataclass(frozen=True)
class Listing:
    """Images in the order of a list, with their labels and other annotations.

    Args:
        images: (n,) paths, strings, or (n, height, width, channels) uint8.
        labels: (n,) integer class ids.
        parts: (n,) words of `PARTS`: the split of each image.
        class_names: Class id -> name.
        super_labels: (n,) integer ids of super-classes.
        boxes: (n, 4) left, upper, right and lower edges, in pixels.
    """

    images: Any
    labels: Any
    parts: Any
    class_names: dict | None = None
    super_labels: Any = None
    boxes: Any = None

    def __post_init__(self):
        for name in ("images", "labels", "parts", "super_labels", "boxes"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.asarray(getattr(self, name)))

    def subset(self, chosen):
        """The rows chosen by booleans."""
        if np.all(chosen):
            return self  # spares a copy of the pixels
        rows = {
            field.name: getattr(self, field.name)[chosen]
            for field in dataclasses.fields(self)
            if field.name != "class_names" and getattr(self, field.name) is not None
        }
        return dataclasses.replace(self, **rows)

    def split(self, part):
        rows = self.subset(self.parts == part)
        return Split(rows.images, rows.labels, self.class_names, rows.super_labels, rows.boxes)


def dataset_of(
    name,
    listing,
    *,
    skip_invalid,
    training,
    source=None,
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
        source: Where the images come from, for the error of missing ones; None if not known.
        where: End of that error's message if `source` is None.
        counts: {part: (images, classes)} as published; None, for all or one number, allows any.
        check_files: Whether to check that every file exists and, with `skip_invalid`, can be read.
        exact_boxes: Whether a box beyond its image is an error; if not, it is clipped.
        image_size: Default (height, width, channels) of the dataset.
        augmentation: Default `Augmentation` of the dataset.

    Raises:
        FileNotFoundError: If images are missing.
        ValueError: If the counts are not as published, a box is not in its image, a training class
            has a single image, or no class is left for training or testing.
    """
    _check_counts(name, listing, counts, skip_invalid)
    if check_files and listing.images.dtype.kind == "U":
        listing = _without_missing(
            listing, skip_invalid, f". Source: {source}" if source else where
        )
        if skip_invalid:
            listing = _without_unreadable(listing)
    if training:
        listing = _without_single(listing, skip_invalid)
    for part in ("train", "test"):
        if part not in listing.parts:
            raise ValueError(
                f"dataset {name!r} must have training and test images. Received: {part}=0"
            )
    if listing.boxes is not None and not exact_boxes:
        boxes = cut_to_images(listing.images, listing.boxes)
        listing = dataclasses.replace(listing, boxes=boxes)
    splits = {part: listing.split(part) for part in PARTS if part in listing.parts}
    if listing.boxes is not None and exact_boxes:
        for split in splits.values():
            check_inside(split)
    return Dataset(name, image_size=image_size, augmentation=augmentation, **splits)


def _check_counts(name, listing, counts, skip_invalid):
    different = []
    for part, expected in (counts or {}).items():
        labels = listing.labels[listing.parts == part]
        found = len(labels), len(np.unique(labels))
        if any(want not in (None, have) for want, have in zip(expected, found, strict=True)):
            words = (
                " images of ".join("any" if n is None else f"{n:,}" for n in numbers) + " classes"
                for numbers in (expected, found)
            )
            different.append("{0}: {2} where {1} are published".format(part, *words))
    if not different:
        return
    sentence = f"dataset {name!r} differs from the published one ({'; '.join(different)})"
    if not skip_invalid:
        raise ValueError(
            f"{sentence}. Its lists are cut off or of another release: get them again, or accept "
            "them with skip_invalid=True, on the command line --skip_invalid true"
        )
    warnings.warn(f"{sentence}: its scores are not comparable", stacklevel=5)


def _without_missing(listing, skip_invalid, where):
    missing = np.array([not os.path.isfile(path) for path in listing.images])
    refuse_or_warn(
        f"of {len(missing)} images that are missing",
        listing.images[missing].tolist(),
        skip_invalid,
        error=FileNotFoundError,
        where=where,
        stacklevel=6,
    )
    return listing.subset(~missing)


def _without_unreadable(listing):
    from pipelines.verification import find_unreadable

    unreadable = find_unreadable(listing.images)
    refuse_or_warn(
        "images that cannot be read",
        [f"{listing.images[row]} ({reason})" for row, reason in unreadable.items()],
        skip_invalid=True,
        stacklevel=6,
    )
    return listing.subset(~np.isin(np.arange(len(listing.images)), list(unreadable)))


def _without_single(listing, skip_invalid):
    """The list without the training classes that have a single image."""
    _, inverse, counts = np.unique(listing.labels, return_inverse=True, return_counts=True)
    single = (listing.parts == "train") & (counts < 2)[inverse]
    names = listing.class_names or {}
    refuse_or_warn(
        "training classes with fewer than 2 images, which have no positive pair",
        [names.get(label, str(label)) for label in listing.labels[single].tolist()],
        skip_invalid,
        stacklevel=6,
    )
    return listing.subset(~single)


def numbered(words):
    """Ids of words: their values if all are integers, otherwise their places in sorted order.

    Args:
        words: (n,) strings.

    Returns:
        `(ids, names)`: (n,) int64, and {id: word}.
    """
    names = sorted(set(words))
    if all(map(_is_id, names)):
        ids = {name: int(name) for name in names}
    else:
        ids = {name: i for i, name in enumerate(names)}
    return np.array([ids[word] for word in words], np.int64), {ids[name]: name for name in names}


def _is_id(word):
    digits = word.removeprefix("-")
    return digits.isdecimal() and str(int(word)) == word and abs(int(word)) < 2**63


def first_half(labels):
    """(n,) parts: `train` for the first half of the classes by id, rounded down, else `test`."""
    classes = np.unique(labels)
    return np.where(np.isin(labels, classes[: len(classes) // 2]), "train", "test")


def refuse_or_warn(what, items, skip_invalid, *, error=ValueError, where="", stacklevel=4):
    """Raises an error that lists the items, or warns that they are left out; does nothing if none.

    Args:
        what: Description of the items.
        items: List of their names.
        skip_invalid: Whether to warn instead of raising.
        error: Class of the error.
        where: Appended to the description in the error.
        stacklevel: Of the warning.
    """
    if not items:
        return
    sentence = f"{len(items)} {what}: {first_five(items)}"
    if not skip_invalid:
        raise error(
            f"{sentence}{where}. Repair them, or leave them out with skip_invalid=True, on "
            "the command line --skip_invalid true"
        )
    warnings.warn(LeftOut(f"left out {sentence}", what, items), stacklevel=stacklevel)


class LeftOut(UserWarning):
    """Warning that lists all items left out in `items`."""

    def __init__(self, sentence, what, items):
        super().__init__(sentence)
        self.what, self.items = what, items


def first_five(items):
    return ", ".join(items[:5]) + (", ..." if len(items) > 5 else "")


def broken_images(paths, verify):
    """{row: reason} of missing files and, with `verify`, of all that cannot be read."""
    if verify:
        from pipelines.verification import find_unreadable

        return find_unreadable(paths)
    return {
        row: "a broken link" if os.path.islink(path) else "no file"
        for row, path in enumerate(paths)
        if not os.path.isfile(path)
    }
