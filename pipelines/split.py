"""Labelled images, and datasets whose training and test classes are disjoint."""

import dataclasses
import os
from typing import Any

import numpy as np

from pipelines.preprocessing import Augmentation, Preprocessing
from pipelines.records import is_record
from tfdml.checks import Bare, check, check_integer, check_number, check_type, conversion


@dataclasses.dataclass(frozen=True, repr=False)
class Split:
    """Labelled images, or labelled rows of any other kind.

    Args:
        images: (n, height, width, channels) uint8, or (n,) paths of image files; None for `inputs`.
        labels: (n,) or (n, 1) integer class ids; or several labels an image, (n, num_labels) of 1
            for each label of the image and 0 elsewhere, num_labels >= 2: class ids are columns.
        class_names: Class id -> name, where the classes have names.
        super_labels: (n,) integer ids of the super-classes, such as alphabets of characters; the
            same for all images of a class.
        boxes: (n, 4) integers, the part of each image to use: left, upper, right and lower edge in
            pixels, the last two exclusive; the whole image if None. The pixels are those of the
            file as stored; the EXIF orientation is applied to the part cut out.
        warped: `Preprocessing` already applied to the images, as in a cache.
        inputs: In place of images, what the embedder takes: n rows of numbers or texts, or a dict
            of such arrays. Batches have these rows as they are, so options of images are rejected.

    Raises:
        ValueError: If there are no images, or what is given does not fit together.
        TypeError: If one is not of the kind stated.

    Example:
        >>> split = Split(inputs={"age": [[31.0], [64.0]], "name": ["Ada", "Bo"]}, labels=[0, 1])
        >>> split
        <Split: 2 rows of 2 classes>
    """

    images: Any = None
    labels: Any = None
    class_names: dict | None = None
    super_labels: Any = None
    boxes: Any = None
    warped: Preprocessing | None = None
    inputs: Any = None

    def __post_init__(self):
        if self.inputs is None:
            vars(self)["images"] = _checked_images(self.images)
            count = len(self.images)
        else:
            vars(self)["inputs"] = self._checked_inputs()
            count = len(self.labels)
        vars(self)["labels"] = _checked_labels(self.labels, count)
        named = self.class_names is None or isinstance(self.class_names, dict)
        received = Bare(type(self.class_names).__name__)
        check_type(named, "`class_names` must be a dict of class ids and names", type=received)
        if self.super_labels is not None:
            self.check_one_label("super-classes")
            vars(self)["super_labels"] = _integers("super_labels", self.super_labels, (count,))
            _, first, inverse = np.unique(self.labels, return_index=True, return_inverse=True)
            wanted = self.super_labels[first][inverse]
            row = int(np.argmax(self.super_labels != wanted))
            both = [int(wanted[row]), int(self.super_labels[row])]
            nested = "`super_labels` must be the same for all images of a class"
            received = {"class": int(self.labels[row]), "super_labels": both}
            check(both[0] == both[1], nested, **received)
        if self.boxes is not None:
            vars(self)["boxes"] = _integers("boxes", self.boxes, (count, 4), "four edges")
            _check_boxes(self.boxes, None if self.holds_paths else self.images.shape[1:3])

    def _checked_inputs(self):
        given = [name for name in ("images", "boxes", "warped") if vars(self)[name] is not None]
        check(not given, "a split of `inputs` must have nothing of images", given=given)
        named = self.inputs if isinstance(self.inputs, dict) else {"inputs": self.inputs}
        arrays = {
            name: _array(f"`{name}` must have rows of one shape", rows)
            for name, rows in named.items()
        }
        for name, rows in arrays.items():
            texts = rows.dtype == object and all(isinstance(t, (str, bytes)) for t in rows.flat)
            expected = f"`{name}` must be rows of numbers or texts"
            known = rows.ndim > 0 and (texts or rows.dtype.kind in "biufUS")
            check_type(known, expected, shape=rows.shape, dtype=Bare(rows.dtype))
        shapes = {f"{name}.shape": rows.shape for name, rows in arrays.items()}
        shapes["labels.shape"] = np.shape(self.labels)
        lengths = {shape[:1] for shape in shapes.values()}
        expected = "`inputs` and `labels` must have the same number of rows, at least one"
        check(arrays and len(lengths) == 1 and (0,) not in lengths, expected, **shapes)
        return arrays if isinstance(self.inputs, dict) else arrays["inputs"]

    def __repr__(self):
        rows = "images" if self.inputs is None else "rows"
        return f"<Split: {len(self.labels):,} {rows} of {self.num_classes:,} classes>"

    @property
    def holds_paths(self):
        return self.inputs is None and self.images.dtype.kind == "U"

    @property
    def holds_records(self):  # inside TFRecord files
        return self.holds_paths and any(map(is_record, self.images[:1]))

    @property
    def classes(self):
        """Ids of the classes that have images, in order."""
        if self.labels.ndim == 2:
            return np.flatnonzero(self.labels.any(axis=0))
        return np.unique(self.labels)

    @property
    def num_classes(self):
        return len(self.classes)

    @property
    def names(self):
        """Names of the classes that have images, or their ids as text, in the order of the ids."""
        return [(self.class_names or {}).get(i, str(i)) for i in self.classes.tolist()]

    def renumbered(self):
        """The split with class ids 0, 1, 2, ... in the order of its own."""
        if self.labels.ndim == 2:
            labels = self.labels[:, self.classes]
        else:
            labels = np.unique(self.labels, return_inverse=True)[1]
        return dataclasses.replace(self, labels=labels, class_names=dict(enumerate(self.names)))

    def check_one_label(self, what):
        """Raises a ValueError that names `what` if an image may have several labels."""
        needed = f"{what} must have one class id per image. Images of several labels train from "
        needed += "Python: EmbeddingModel.fit on pipelines.shuffled_batches, with the loss 'supcon'"
        check(self.labels.ndim == 1, needed, **{"labels.shape": self.labels.shape})

    def check_super_labels(self):
        """Raises a ValueError if there are none."""
        needed = "groups need `super_labels`, the super-class of each image, as omniglot has in its"
        needed = f"{needed} alphabets and a CSV file in a column super_label"
        check(self.super_labels is not None, needed, super_labels=None)

    def subset(self, chosen):
        """The split of the chosen rows (booleans or indices)."""
        if np.asarray(chosen).dtype == bool and np.all(chosen):
            return self  # spares a copy of the pixels
        fields = vars(self).items()
        rows: dict[str, Any] = {
            name: value[chosen] for name, value in fields if isinstance(value, np.ndarray)
        }
        if isinstance(self.inputs, dict):
            rows["inputs"] = {name: each[chosen] for name, each in self.inputs.items()}
        return dataclasses.replace(self, **rows)


def _checked_images(images):
    """Returns pixels or texts of paths, as an array."""
    images = _array("`images` must be of one size, or paths", images)
    named = (isinstance(image, (str, os.PathLike)) for image in images.flat)
    if images.dtype == object and images.ndim == 1 and all(named):
        images = np.array([os.fspath(path) for path in images])
    check(images.shape[:1] != (0,), "a split must hold at least one image", images=0)
    are_pixels = images.dtype == np.uint8 and images.ndim == 4
    are_paths = images.dtype.kind == "U" and images.ndim == 1
    expected = "`images` must be (n, height, width, channels) uint8 or (n,) paths"
    if images.ndim == 2:
        expected += "; other rows are the `inputs` of a split"
    elif images.dtype.kind == "f":
        expected += "; convert those in [0, 1] by (255 * images).astype('uint8'), those in "
        expected += "[0, 255] by images.astype('uint8')"
    elif images.ndim == 3:
        expected += "; add the channel of grey images by images[..., None]"
    received = {"shape": images.shape, "dtype": Bare(images.dtype)}
    check_type(are_pixels or are_paths, expected, **received)
    return images


def _array(expected, rows):
    try:
        return np.asarray(rows)
    except ValueError as error:  # of NumPy
        raise ValueError(f"{expected}: {error}") from None


def _integers(name, values, shape, each="one id"):
    values = np.asarray(values)
    expected = f"`{name}` must have {each} per image"
    check(values.shape == shape, expected, images=shape[0], **{f"{name}.shape": values.shape})
    expected = f"`{name}` must be integers"
    if name != "boxes":
        expected += conversion(name, shape, values.dtype)
    check_type(values.dtype.kind in "iu", expected, dtype=Bare(values.dtype))
    return values.astype(np.int64)


def _checked_labels(labels, count):
    """Returns one class id per image, or several labels of each, 0 or 1."""
    labels = np.asarray(labels)
    if labels.shape == (count, 1):
        labels = labels[:, 0]
    if labels.ndim != 2 or labels.shape[1] < 2:
        return _integers("labels", labels, (count,))
    labels = _integers("labels", labels, (count, labels.shape[1]), "a row of 0 and 1")
    expected = "several `labels` an image must be 0 or 1"
    check(np.isin(labels, (0, 1)).all(), expected, labels=Bare(f"{labels.min()} to {labels.max()}"))
    return labels


def _check_boxes(boxes, size):
    height, width = size or (np.inf, np.inf)
    left, top, right, bottom = boxes.T
    good = (left >= 0) & (left < right) & (right <= width)
    good &= (top >= 0) & (top < bottom) & (bottom <= height)
    row = int(np.argmin(good))
    received = {} if size is None else {"width": width, "height": height}
    expected = "`boxes` must have left < right and upper < lower edge, inside the image"
    check(good[row], expected, row=row, box=boxes[row].tolist(), **received)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Images for training, and images of other classes for evaluation.

    Args:
        name: Of the dataset.
        train: `Split` to train on.
        test: `Split` of classes not in `train`: the queries. With several labels an image, those of
            `train` too.
        image_size: (height, width, channels), the default size of its images.
        augmentation: Default `Augmentation`.
        preprocessing: Default `Preprocessing`.
        gallery: `Split` that the queries are searched in; None if it is the test images themselves.

    Raises:
        ValueError: If a class is in both training and test images.
    """

    name: str
    train: Split
    test: Split
    image_size: tuple
    augmentation: Augmentation = dataclasses.field(default_factory=Augmentation)
    preprocessing: Preprocessing = dataclasses.field(default_factory=Preprocessing)
    gallery: Split | None = None

    def __post_init__(self):
        if self.train.labels.ndim == 2:
            return
        for name in [*self.splits][1:]:
            shared = np.intersect1d(self.train.labels, self.splits[name].labels)[:5].tolist()
            names = [(self.train.class_names or {}).get(label, label) for label in shared]
            check(not shared, f"train and {name} must not share classes", shared=names)

    @property
    def splits(self):
        """{name: `Split`}: train, test and, if there is one, gallery."""
        splits = {"train": self.train, "test": self.test}
        return splits if self.gallery is None else {**splits, "gallery": self.gallery}

    def scored(self):
        """The images of test and gallery as one `Split`, and which are queries; None if all are."""
        if self.gallery is None:
            return self.test, None
        split = join_splits([self.test, self.gallery])
        return split, np.arange(len(split.labels)) < len(self.test.labels)

    @property
    def places(self):
        """(n,) integers, the place among the `splits` of each image of `both()`."""
        sizes = [len(split.labels) for split in self.splits.values()]
        return np.repeat(np.arange(len(sizes)), sizes)

    def both(self):
        """The images of all splits, train, test and gallery, as one `Split`."""
        return join_splits(self.splits.values())


def join_splits(splits):
    """The rows of several splits, in order, as one `Split`; without super-labels if one has none.

    Args:
        splits: `Split`s with the same class ids and preprocessing, all or none with boxes, whose
            images are all pixels of one size or all paths, or of the same `inputs`.

    Raises:
        TypeError, ValueError: If they are not so.
    """
    splits, joined = list(splits), {}
    for split in splits:
        check_split(split)
    kinds = [(id(each.warped), each.boxes is None, _names_of(each.inputs)) for each in splits]
    alike = "splits to join must have the same `warped` and `inputs`, and all have boxes or none"
    check(len(set(kinds)) == 1, alike, splits=splits)
    for name in ("images", "labels", "super_labels", "boxes", "inputs"):
        parts = [getattr(split, name) for split in splits]
        if any(part is None for part in parts):
            joined[name] = None
        elif isinstance(parts[0], dict):
            joined[name] = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        else:
            joined[name] = np.concatenate(parts)
    class_names = {i: name for split in splits for i, name in (split.class_names or {}).items()}
    return Split(class_names=class_names, warped=splits[0].warped, **joined)


def _names_of(inputs):
    return frozenset(inputs) if isinstance(inputs, dict) else inputs is None


def rows_to_find(split, queries=None):
    """The number of images that each query of a split is compared with, itself excluded."""
    return len(split.labels) - 1 if queries is None else int((~queries).sum())


def check_split(split):
    """Raises a TypeError unless it is a `Split`."""
    if not isinstance(split, Split):
        received = f"Received: split of type {type(split).__name__}"
        raise TypeError(f"`split` must be a `Split`, such as `dataset.train`. {received}")


def hold_out_classes(split, share):
    """Holds out the last classes for validation: `(rest, held_out)`, two splits.

    Adjacent class ids are often related, such as cars of one make: classes held out at random would
    leave related ones on both sides and overestimate the test score.

    Args:
        split: `Split` of training images, of 2 classes or more.
        share: Share of its classes to hold out, above 0 and below 1; at least one is.

    Raises:
        TypeError, ValueError: If one is not so.
    """
    check_split(split)
    split.check_one_label("classes to hold out")
    classes = split.classes
    check_number(share=share)
    check(0 < share < 1, "`share` must be > 0 and < 1", share=share)
    check(len(classes) >= 2, "holding out classes needs 2 or more", classes=len(classes))
    count = min(max(1, round(share * len(classes))), len(classes) - 1)
    held_out = split.labels >= classes[-count]
    return split.subset(~held_out), split.subset(held_out)


def hold_out_fold(split, number, folds):
    """Holds out a fold of adjacent classes: `(rest, held_out)`, two splits.

    Args:
        split: `Split` of training images.
        number: Number of the fold, from 0.
        folds: Number of folds; each has 2 classes or more.

    Raises:
        ValueError: If there are too few classes.
    """
    expectation = "there must be 2 or more classes to train on in each of the `folds`"
    check(split.num_classes >= 2 * folds, expectation, folds=folds, classes=split.num_classes)
    held_out = np.isin(split.labels, np.array_split(split.classes, folds)[number])
    return split.subset(~held_out), split.subset(held_out)


def draw_gallery(split, seed=0):
    """Draws a random image of every class: `(queries, gallery)`, in the order of `split`.

    The protocol of VehicleID: every query has a single relevant image, a class with one image no
    query.

    Args:
        split: `Split` to test on, with a class of 2 images.
        seed: Of the draw, >= 0.

    Raises:
        TypeError, ValueError: If one is not so.

    Example:
        >>> queries, gallery = draw_gallery(Split(["a.png", "b.png", "c.png"], [4, 7, 4]))
        >>> print(queries.labels, gallery.labels)
        [4] [7 4]
    """
    check_split(split)
    split.check_one_label("a gallery to draw")
    check_integer(0, seed=seed)
    images, classes = len(split.labels), split.num_classes
    needed = "drawing a gallery needs a class with 2 or more images"
    check(classes < images, needed, images=images, classes=classes)
    order, drawn = np.random.default_rng(seed).permutation(images), np.zeros(images, bool)
    drawn[order[np.unique(split.labels[order], return_index=True)[1]]] = True
    return split.subset(~drawn), split.subset(drawn)
