"""Base class of all losses: integer labels and one embedding per row in, a scalar out."""

import dataclasses
import inspect
from typing import Any, NamedTuple

import keras
from keras import ops

from tfdml import pairwise
from tfdml.checks import check_bool, check_shapes
from tfdml.layers import gathering
from tfdml.layers.kept_options import serialized
from tfdml.losses import _inputs
from tfdml.losses.batch import Batch, Traits


class Entry(NamedTuple):
    """What a name stands for."""

    loss: Any  # the class
    implied: dict  # options that the name implies
    published: dict  # the options of the paper, where the defaults differ


ENTRIES = {"loss": {}, "regularizer": {}}


def register(name, implied=None, *, published=None, kind="loss"):
    """Makes a class known by a name, and to Keras, which saves it.

    Args:
        name: Name for `get`, or for `get_regularizer`.
        implied: {option: value} that the name implies.
        published: {option: value} of the paper, for `preset="published"`, where defaults differ.
        kind: `"loss"` or `"regularizer"`.

    Returns:
        A decorator of the class.
    """

    def registered(loss):
        ENTRIES[kind][name] = Entry(loss, implied or {}, published or {})
        keras.saving.register_keras_serializable("tfdml")(loss)
        return loss

    return registered


class MetricLoss(keras.losses.Loss):
    """Base class of losses over all rows of a batch at once.

    A subclass implements `call(batch)`, which takes a `Batch` of checked labels and embeddings,
    float32 (float64 stays), and returns a scalar. Its options are attributes of the same names, for
    `get_config`, or `option(name)` returns them. What models and other losses must know of it is in
    its `traits`. See `PairLoss` for objectives over pairs of rows, `ProxyLoss` for those over
    proxies of classes, and `LearnedLoss` for others with trainable weights.

    Differs: Keras casts labels to float, which merges class ids from 2**24 on; here they stay
    integers. Keras weights samples; where the terms are pairs, `sample_weight` is rejected. Keras
    leaves out rows that a layer has masked; here they count.

    Args:
        normalize: Whether rows are scaled to unit length first.
        name: Name of the loss in logs.

    Call:
        Labels and embeddings, as `__call__` says. Returns >= 0, and 0 for a batch without the pairs
        or tuples that a loss compares, unless it says otherwise.

    Raises:
        TypeError: If an option is of a wrong type.
        ValueError: If an option is out of range.

    Example:
        >>> loss = TripletLoss(margin=0.2)
        >>> rows = np.array([[1., 0.], [0., 1.], [0., 1.]])
        >>> print(round(float(loss(np.array([0, 0, 1]), rows)), 4))
        1.2
    """

    traits = Traits()
    layers = ()  # trainable, see `LearnedLoss`

    def __init__(self, *, normalize, name=None):
        super().__init__(name=name, reduction="sum_over_batch_size")
        [self.normalize] = check_bool(normalize=normalize)

    def __call__(self, y_true, y_pred, sample_weight=1.0, training=None):
        """The loss of one batch.

        Args:
            y_true: (batch,) or (batch, 1) integers, the class id of each row. For losses that take
                label sets also (batch, num_labels) integers, 1 for each label of a row and 0
                elsewhere, num_labels >= 2.
            y_pred: (batch, dim) floats, the embedding of each row. Without `normalize`, norms up
                to 1e14 are supported; up to 1e8 by the regularizers of density and global
                orthogonality, which square the squares again.
            sample_weight: Factor of the loss; or (batch,) or (batch, 1) numbers, the factor of each
                row, for losses whose terms are rows: the sum is divided by the batch, as Keras
                does. None, from `compile` of Keras, is 1.
            training: Whether layers of the loss, if any, run in training mode; None means False.

        Returns:
            A scalar float32 (float64 for float64 embeddings), NaN if any embedding is. In a replica
            of a `tf.distribute` strategy it is divided by the number of replicas, as Keras does, so
            that the replicas' gradients add up to their mean. In `fit` and `evaluate` of a
            `keras.Model` it is that of the rows of all replicas; in a loop of your own, that of the
            rows given.

        Raises:
            TypeError: If the labels are not integers or the embeddings not floats.
            ValueError: If the shapes disagree, the batch is empty, rows are weighted whose terms
                are not rows, a label is not below `num_classes`, label sets are not of 0 and 1, or
                a loss with layers is called by `compile` of a plain `keras.Model`. Wrong labels in
                a tensor raise TensorFlow's InvalidArgumentError; with XLA and on other backends the
                loss is NaN.
        """
        factor, weights = 1.0, sample_weight
        if isinstance(sample_weight, (int, float)):
            factor, weights = sample_weight, None
        elif self.layers and training is None:  # rows' weights or None: from `compile`
            raise ValueError(
                f"{type(self).__name__} has a layer, {self.layers[0].name!r}, which `compile` of a "
                "plain keras.Model neither trains nor saves. Compile it with tfdml.EmbeddingModel "
                "instead. In a loop of your own, pass `training` with `sample_weight`."
            )
        if weights is not None and not self.traits.takes_sample_weight:
            raise ValueError(
                f"{type(self).__name__} does not support `sample_weight` or `class_weight`: its "
                "terms are of several rows, not rows. Weight samples with the sampler."
            )
        labels = _inputs.as_labels(y_true, y_pred, self.traits)
        embeddings = _inputs.as_embeddings(y_pred)
        counts = {labels.shape[0], embeddings.shape[0]} - {None}
        expectation = "`labels` and `embeddings` must have the same batch size"
        check_shapes(len(counts) < 2, expectation, labels=labels, embeddings=embeddings)
        if sample_weight is None:  # Keras passes the rows of this replica alone
            labels, embeddings = gathering.gather_replicas(labels, embeddings)
        check_shapes(embeddings.shape[0] != 0, "the batch must not be empty", embeddings=embeddings)
        for layer in self.layers:
            if not layer.built:  # here, as by `compile`: outside of the loss's own name scope
                layer.build((None, embeddings.shape[1]))
        self.built = True  # for Keras, where the loss is a layer of a model
        with keras.name_scope(self.name):
            labels, valid = _inputs.asserted_labels(labels, self.traits)
            if weights is not None:
                weights = _inputs.as_weights(weights, embeddings)
            batch = self.scaled(Batch(labels, embeddings, bool(training), weights))
            value = self.call(batch) * factor
            # NaN in a row that no term uses would not show in the value otherwise.
            broken = ops.where(ops.isnan(ops.sum(batch.embeddings)), float("nan"), 0.0)
            value = value + ops.cast(broken, value.dtype)
            if valid is not None:  # without gradient where they are not
                value = ops.where(valid, value, float("nan"))
            return gathering.share_of_replica(value)

    def call(self, batch):
        """The loss of a `Batch`, a scalar."""
        raise NotImplementedError

    def scaled(self, batch):
        """The batch with rows of unit length if the loss asks for it by `normalize`."""
        if not self.normalize:
            return batch
        return dataclasses.replace(batch, embeddings=self.unit_rows(batch.embeddings))

    def unit_rows(self, embeddings):
        """The embeddings scaled to unit length, as with `normalize`."""
        return pairwise.normalize(embeddings)

    @property
    def levels(self):
        return self.traits.levels

    @property
    def num_classes(self):
        return self.traits.num_classes

    def check_labels(self, labels, embeddings=None):
        """Raises an error for an array of labels that are not integers or beyond `num_classes`."""
        _inputs.check_labels(labels, embeddings, self.traits)

    def prepare(self, labels, embeddings=None, features=None):
        """Sees the training images once, before the first step. Most losses ignore them.

        Args:
            labels: (n,) integers from 0 to the number of classes - 1.
            embeddings: Function that returns the (n, dim) embeddings of the untrained embedder.
            features: The same for the (n, features) outputs of its backbone.
        """

    def check_run(self, *, rows, classes, width, steps):
        """Raises a ValueError for a training that it cannot serve.

        It has `steps`, with batches of `rows` of up to `classes`, of embeddings of `width` numbers.
        """

    def logs(self):
        """What it learned, for the logs: {name: number or array}."""
        return {}

    def get_config(self):
        options = inspect.signature(type(self)).parameters
        return {name: serialized(self.option(name)) for name in options}

    def option(self, name):
        """The option that the loss was built with."""
        return getattr(self, name)

    @classmethod
    def from_config(cls, config):
        parts = [name for name, of in config.items() if isinstance(of, dict) and "class_name" in of]
        built = {name: keras.saving.deserialize_keras_object(config[name]) for name in parts}
        return cls(**{**config, **built})


class PairLoss(MetricLoss):
    """Base class of objectives over pairs of rows, which may also pair a batch with other rows.

    A subclass implements `call(batch)` by the distances or cosines of `batch` to its references,
    and its `positives` and `negatives` among them: the batch itself, or a memory.

    Attributes:
        takes_references: Whether the options allow for rows of other batches.
    """

    takes_references = True


class LearnedLoss(MetricLoss, keras.layers.Layer):
    """Base class of losses with trainable weights, held in a Keras layer.

    A subclass holds its weights in `layer` and implements `call(batch)`. One whose layer scores
    pairs of rows states it in its `traits`, returns that layer as `similarity_layer` and implements
    `similarity(a, b)`. `tfdml.EmbeddingModel` trains, saves and restores the layers, and so does a
    model or a layer of which the loss, a Keras layer too, is an attribute, once it was called.
    `compile` of a plain `keras.Model` would do neither: the call then raises a ValueError.

    Attributes:
        layer: The Keras layer; None if there is nothing to learn.
        layers: All trainable layers, including those of losses inside it.
    """

    layer: Any  # no attribute of the class, which on PyTorch would hide that of a loss
    similarity_layer = None

    def __init__(self, *, normalize, name=None):
        keras.layers.Layer.__init__(self, name=name)
        super().__init__(normalize=normalize, name=name)

    @property
    def layers(self):
        layer = getattr(self, "layer", None)
        return [] if layer is None else [layer]

    def similarity(self, a, b):
        """The learned score of each row of `a` (n, dim) and the same row of `b` (n, dim): (n,)."""
        raise NotImplementedError

    def get_build_config(self):
        """What Keras saves to build the layers again, before it restores their weights."""
        built = [layer.get_build_config() if layer.built else None for layer in self.layers]
        return {"layers": built} if any(built) else None

    def build_from_config(self, config):
        for layer, built in zip(self.layers, config["layers"], strict=True):
            if built is not None and not layer.built:
                layer.build_from_config(built)
