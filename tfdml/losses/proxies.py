"""What the objectives over proxies of classes share."""

import dataclasses
import functools

import keras
import numpy as np
from keras import ops

from tfdml import pairwise
from tfdml.checks import check, check_integer, check_not_negative, check_positive
from tfdml.layers import ClassProxies
from tfdml.losses._inputs import ids_of_images
from tfdml.losses.base import LearnedLoss
from tfdml.losses.batch import Traits

CENTRED_MEANS = "centred_class_means"
MEANS = ("class_means", CENTRED_MEANS)


class ProxyLoss(LearnedLoss):
    """Base class of objectives that compare rows with proxies of classes.

    A subclass implements `row_losses(labels, cosines)`, and leaves `takes_sample_weight` of its
    traits if its terms are not rows.

    Args:
        num_classes: Number of classes, C, with ids 0 to `num_classes - 1`; None to count those of
            the training images in `prepare`, as `train.py` does.
        centers: Centers of each class.
        initializer: Start of the proxies: `"centred_class_means"`, the directions of the class
            means from the mean of all classes, or `"class_means"`, those from the origin, both
            measured by `prepare`; before, or if None, as published. Or a Keras initializer. Means
            keep the published lengths; several centers lie about 6 degrees around the mean.
        proxy_multiplier: Factor of the learning rate of the proxies, applied by `train.py`; if
            None, that of other new layers.

    Attributes:
        layer: `ClassProxies`, the proxies; None until the number of classes is known.

    Call:
        As `MetricLoss`, of unit rows and labels from 0 to `num_classes - 1`. Returns >= 0.

    Raises:
        ValueError: If the number of classes is not known.
    """

    traits = Traits(compares_rows=False, takes_sample_weight=True)
    is_softmax = False  # over classes, of which some may be left out
    layer_name = "class_proxies"
    suggested_multiplier = None  # by `train.py`, on top of pretrained weights

    def __init__(self, num_classes, centers, initializer, proxy_multiplier, name):
        super().__init__(normalize=True, name=name)
        self.proxy_multiplier = None
        if proxy_multiplier is not None:
            [self.proxy_multiplier] = check_not_negative(proxy_multiplier=proxy_multiplier)
        [self.centers] = check_integer(1, centers=centers)
        self.initializer = initializer
        if initializer not in (None, *MEANS):
            self.initializer = keras.initializers.get(initializer)
        self.layer = self._logged = None
        if num_classes is not None:
            self._set_classes(num_classes)

    def _set_classes(self, num_classes):
        [num_classes] = check_integer(1, num_classes=num_classes)
        self.traits = dataclasses.replace(self.traits, num_classes=num_classes)
        initializer = self.initializer
        if initializer in (None, *MEANS):
            initializer = self.published_initializer(num_classes)
        options = self.centers, initializer, self.proxy_multiplier, self.layer_name
        self.layer = ClassProxies(num_classes, *options)
        self.layer.suggested_multiplier = self.suggested_multiplier

    def rename_layer(self, name):
        """Names the layer, by which optimizers have learning rates, unless it has weights."""
        self.layer_name = name
        if self.layer is not None and not self.layer.built:
            self._set_classes(self.num_classes)

    def published_initializer(self, num_classes):
        """The Keras initializer of the authors."""
        raise NotImplementedError

    def prepare(self, labels, embeddings=None, features=None):
        """Counts the classes, if they are not known, and starts at their means if asked to."""
        labels, num_classes = ids_of_images(labels, self.num_classes)
        if self.num_classes is None:
            self._set_classes(num_classes)
        if self.initializer in MEANS and embeddings is not None:
            self._start_at_means(labels, embeddings())

    def _start_at_means(self, labels, embeddings):
        """Turns the proxies to the means of their classes."""
        rows = _directions(np.asarray(embeddings))
        if not self.layer.built:
            self.layer.build(rows.shape)
        before = ops.convert_to_numpy(self.layer.proxies)
        lengths = np.linalg.norm(before, axis=-1, keepdims=True)
        counts = np.bincount(labels, minlength=len(before))[:, None]
        present = np.count_nonzero(counts)
        means = np.zeros((len(before), rows.shape[1]))
        np.add.at(means, labels, rows)
        means /= np.maximum(counts, 1)
        if self.initializer == CENTRED_MEANS and present > 1:
            # The rows of an untrained network are nearly parallel, and so are their means.
            means = np.where(counts, means - means.sum(axis=0) / present, 0.0)
        start, spread = _directions(means), 1e-6  # where all means are equal, as published
        if self.centers > 1:
            start, spread = start[:, None], 0.1
        self.layer.proxies.assign(lengths * _directions(start + spread * before / lengths))

    def logs(self):
        """Mean angle in degrees by which the proxies turned since the last call."""
        if self.num_classes is None:  # `call` says so
            return {}
        now = ops.convert_to_numpy(self.layer.directions("float32"))
        before, self._logged = now if self._logged is None else self._logged, now
        cosines = np.clip((now * before).sum(axis=-1), -1, 1)
        return {"proxy_degrees": float(np.degrees(np.arccos(cosines)).mean())}

    def call(self, batch):
        expectation = "the number of classes must be known: give `num_classes`, or call `prepare`"
        known = self.num_classes is not None
        check(known, f"{expectation}, as `train.py` does", num_classes=None)
        losses = self.row_losses(batch.labels, self.cosines(batch.embeddings))
        return pairwise.mean(losses, batch.sample_weight)

    def cosines(self, embeddings, classes=None):
        """The cosines that `row_losses` takes, of some of the classes, (n,) integers, or all."""
        return self.layer.cosines(embeddings, classes)

    def row_losses(self, labels, cosines):
        """The loss of each row, (n,); or that of all, a scalar, without `takes_sample_weight`.

        `cosines` are (n, num_classes), or (n, num_classes, centers).
        """
        raise NotImplementedError


class MarginSoftmaxLoss(ProxyLoss):
    """Base class of softmax losses with a margin: a subclass implements `penalized(cosines)`."""

    is_softmax = True

    def __init__(self, num_classes, centers, initializer, proxy_multiplier, name, scale, margin):
        super().__init__(num_classes, centers, initializer, proxy_multiplier, name)
        [self.scale] = check_positive(scale=scale)
        [self.margin] = check_not_negative(margin=margin)

    def published_initializer(self, num_classes):
        return keras.initializers.RandomNormal(stddev=0.01)

    def cosines(self, embeddings, classes=None):
        # The gradient of `ops.max` takes longer.
        return functools.reduce(ops.maximum, self.layer.cosines_of_centers(embeddings, classes))

    def row_losses(self, labels, cosines):
        target = target_mask(labels, cosines)
        # Not `ops.take_along_axis`, whose gradient takes two more matrices of this size.
        own = pairwise.masked_sum(cosines, target, axis=1)[:, None]
        penalized = ops.where(target, self.penalized(own), cosines)
        return cross_entropy(labels, self.scale * penalized)

    def penalized(self, cosines):
        """The cosines of the rows with their own classes, (n, 1), with the margin."""
        raise NotImplementedError


def _directions(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


def target_mask(labels, cosines):
    """(n, num_classes) booleans: the class of each row."""
    return labels[:, None] == ops.arange(ops.shape(cosines)[1], dtype=labels.dtype)[None, :]


def cross_entropy(labels, logits):
    """(n,) cross-entropies of the rows with their classes."""
    losses = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    return ops.cast(losses, logits.dtype)  # with x64, JAX gives float64
