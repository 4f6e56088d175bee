"""Base class of all losses: integer labels and one embedding per row in, a scalar out."""

import inspect
from typing import Any

import keras
import numpy as np
from keras import ops

from tfdml import pairwise
from tfdml.checks import Bare, check, check_bool, check_shapes, check_type, conversion

_WIDEST_ID = "int32" if keras.backend.backend() == "jax" else "int64"
_NOT_GIVEN = object()
OF_SETS = "`labels` of the shape (batch, num_labels) must be 0 or 1"


class MetricLoss(keras.losses.Loss):
    """Base class of losses over all rows of a batch at once.

    A subclass implements `call(labels, embeddings)`, which returns a scalar. It gets labels as
    (batch,) integers and embeddings as (batch, dim) float32 (float64 stays), of unit length if
    `normalize`. Its options are attributes of the same names, for `get_config`, or `option(name)`
    returns them. A loss for several exits of a network sets `levels` to the number of parts of an
    embedding. A loss with values per class sets `num_classes`. One that takes several labels a row
    sets `takes_label_sets`; its `call` gets either form. See `PairLoss` for objectives over pairs
    of rows, and `LearnedLoss` for those with trainable weights.

    Differs: Keras casts labels to float, which merges class ids from 2**24 on; here they stay
    integers. Keras weights samples; where the terms are pairs, `sample_weight` is rejected. Keras
    leaves out rows that a layer has masked; here they count.

    Args:
        normalize: Whether rows are scaled to unit length first.
        name: Name of the loss in logs.
    """

    layers = ()  # trainable, see `LearnedLoss`
    learns_similarity = False
    levels = 1  # equal parts of an embedding, each with a loss of its own
    compares_rows = True  # its terms are pairs or tuples of rows
    compares_batches = False  # labels of a batch with those of other batches
    num_classes = None  # labels are any ids; or 0 to num_classes - 1
    takes_label_sets = False  # also several labels a row: (batch, num_labels) of 0 and 1
    takes_sample_weight = False  # its terms are rows

    def __init__(self, *, normalize, name=None):
        super().__init__(name=name, reduction="sum_over_batch_size")
        check_bool(normalize=normalize)
        self.normalize = normalize

    def __call__(self, y_true, y_pred, sample_weight=_NOT_GIVEN, training=None):
        """The loss of one batch.

        Args:
            y_true: (batch,) or (batch, 1) integers, the class id of each row. For losses with
                `takes_label_sets` also (batch, num_labels) integers, 1 for each label of a row and
                0 elsewhere, num_labels >= 2.
            y_pred: (batch, dim) floats, the embedding of each row. Without `normalize`, norms up
                to 1e14 are supported, whose scaled squares and their sums are in the range of
                float32; up to 1e8 by the regularizers of density and global orthogonality, which
                square these again.
            sample_weight: (batch,) or (batch, 1) numbers, the factor of each row, for losses with
                `takes_sample_weight`, whose terms are rows; the sum is divided by the batch, as
                Keras does. None for others.
            training: Whether layers of the loss, if any, run in training mode; None means False.

        Returns:
            A scalar float32 (float64 for float64 embeddings), NaN if any embedding is. In a replica
            of a `tf.distribute` strategy it is divided by the number of replicas, as Keras does for
            its own losses, so that the replicas' gradients add up to their mean. In `fit` and
            `evaluate` of a `keras.Model` it is that of the rows of all replicas; in a training loop
            of your own, that of the rows given.

        Raises:
            TypeError: If the labels are not integers or the embeddings not floats.
            ValueError: If the shapes disagree, the batch is empty, `sample_weight` is given for
                terms that are not rows, a label is not below `num_classes`, label sets are not of 0
                and 1, or a loss with layers is called by `compile` of a plain `keras.Model`, which
                would not train them. Wrong labels in a tensor raise TensorFlow's
                InvalidArgumentError; with XLA and on other backends the loss is NaN.
        """
        # `compile` of Keras passes weights, or None, but no `training`.
        by_keras = sample_weight is not _NOT_GIVEN and training is None
        weighted = sample_weight is not None and sample_weight is not _NOT_GIVEN
        if weighted and not self.takes_sample_weight:
            raise ValueError(
                f"{type(self).__name__} does not support `sample_weight` or `class_weight`: its "
                "terms are of several rows, not rows. Weight samples with the sampler."
            )
        if self.layers and by_keras:
            raise ValueError(
                f"{type(self).__name__} has a layer, {self.layers[0].name!r}, which `compile` of a "
                "plain keras.Model neither trains nor saves. Compile it with tfdml.EmbeddingModel "
                "instead. In a loop of your own, pass `training` with `sample_weight`."
            )
        labels = self._as_labels(y_true, y_pred)
        embeddings = _as_embeddings(y_pred)
        check_shapes(
            labels.shape[0] == embeddings.shape[0]
            or None in (labels.shape[0], embeddings.shape[0]),
            "`labels` and `embeddings` must have the same batch size",
            labels=labels,
            embeddings=embeddings,
        )
        if sample_weight is None:  # Keras passes the rows of this replica alone
            labels, embeddings = _of_all_replicas(labels, embeddings)
        check_shapes(embeddings.shape[0] != 0, "the batch must not be empty", embeddings=embeddings)
        for layer in self.layers:
            if not layer.built:  # here, as by `compile`: outside of the loss's own name scope
                layer.build((None, embeddings.shape[1]))
        self.built = True  # for Keras, where the loss is a layer of a model
        with keras.name_scope(self.name):
            valid = None  # whether the labels are, if that is to be checked
            if len(labels.shape) == 2:
                valid = ops.all((labels == 0) | (labels == 1))
                valid = pairwise.asserted(valid, OF_SETS, labels)
            elif self.num_classes is not None:
                labels, valid = _known(labels, self.num_classes)
            if self.normalize:
                embeddings = self.unit_rows(embeddings)
            weights = {"sample_weight": _of_rows(sample_weight, embeddings)} if weighted else {}
            value = self._value(labels, embeddings, bool(training), **weights)
            # NaN in a row that no term uses would not show in the value otherwise.
            broken = ops.where(ops.isnan(ops.sum(embeddings)), float("nan"), 0.0)
            value = value + ops.cast(broken, value.dtype)
            if valid is not None:  # without gradient where they are not
                value = ops.where(valid, value, float("nan"))
            return _share_of_replica(value)

    def _as_labels(self, labels, embeddings):
        """Labels as a tensor: (batch,) ids, or (batch, num_labels) of 0 and 1."""
        if not ops.is_tensor(labels):
            labels = np.asarray(labels)
            self.check_labels(labels, embeddings)
            labels = self._as_tensor(labels)
        if _builds_for_replicas():
            labels = ops.cast(labels, "int64")
        check_integers(labels, embeddings)
        dtype = _dtype(labels)
        if dtype not in ("int32", "int64"):  # TensorFlow accepts no others as indices
            labels = ops.cast(labels, "int64" if dtype in ("uint32", "uint64") else "int32")
        if self.takes_label_sets and _are_sets(labels):
            return labels
        expected = "`labels` must have the shape (batch,) or (batch, 1)"
        if self.takes_label_sets:
            expected += ", or (batch, num_labels) for several labels a row"
        check_shapes(
            len(labels.shape) == 1 or (len(labels.shape) == 2 and labels.shape[1] == 1),
            expected + conversion("labels", labels.shape, dtype),
            labels=labels,
        )
        return ops.reshape(labels, (-1,))

    def check_labels(self, labels, embeddings=None):
        """Raises an error for an array of labels that are not integers or beyond `num_classes`."""
        check_integers(labels, embeddings)
        are_sets = self.takes_label_sets and _are_sets(labels)
        count = 2 if are_sets else self.num_classes
        if count is not None and labels.size:
            check(
                labels.min() >= 0 and labels.max() < count,
                OF_SETS
                if are_sets
                else f"`labels` must be from 0 to {count - 1}, the classes of the loss",
                labels=Bare(f"{labels.min()} to {labels.max()}"),
            )

    def _as_tensor(self, labels):
        are_sets = self.takes_label_sets and _are_sets(labels)
        if not (are_sets or self.compares_batches) and self.num_classes is None:
            # Renumbered, as JAX truncates integers to 32 bits.
            labels = np.unique(labels, return_inverse=True)[1].reshape(labels.shape)
        dtype = _WIDEST_ID if self.compares_batches else "int32"
        return ops.convert_to_tensor(labels.astype(dtype))

    def unit_rows(self, embeddings):
        """The embeddings scaled to unit length, as with `normalize`."""
        return pairwise.normalize(embeddings)

    def call(self, labels, embeddings):
        raise NotImplementedError

    def prepare(self, labels, embeddings=None, features=None):
        """Sees the training images once, before the first step. Most losses ignore them.

        Args:
            labels: (n,) integers from 0 to the number of classes - 1, of the training images.
            embeddings: Function that returns the (n, dim) embeddings of the untrained embedder, for
                proxies that start at class means.
            features: The same for the (n, features) outputs of its backbone, for densities.
        """

    def check_run(self, *, rows, classes, width, steps):
        """Raises a ValueError for a training that it cannot serve, before the first step.

        Args:
            rows: Rows of a batch.
            classes: Most classes of a batch.
            width: Numbers of an embedding.
            steps: Training steps.
        """

    def logs(self):
        """What it learned, for the logs: {name: number or array}."""
        return {}

    def _value(self, labels, embeddings, training):
        return self.call(labels, embeddings)

    def get_config(self):
        options = inspect.signature(type(self)).parameters
        return {name: _serialized(self.option(name)) for name in options}

    def option(self, name):
        """The option that the loss was built with."""
        return getattr(self, name)

    @classmethod
    def from_config(cls, config):
        return cls(**{name: _deserialized(value) for name, value in config.items()})


class PairLoss(MetricLoss):
    """Base class of objectives over pairs of rows, which may also pair a batch with other rows.

    A subclass implements `call_against`; the loss of a batch is that against itself.

    Attributes:
        takes_references: Whether the options allow for rows of other batches.
    """

    takes_references = True

    def call(self, labels, embeddings):
        own = ops.arange(ops.shape(labels)[0])
        return self.call_against(labels, embeddings, labels, embeddings, own)

    def call_against(
        self, labels, embeddings, reference_labels, reference_embeddings, self_positions
    ):
        """The loss of anchors whose positives and negatives are among references.

        Args:
            labels: (n,) integers, of the anchors.
            embeddings: (n, dim) floats, of unit length if `normalize`.
            reference_labels: (m,) integers.
            reference_embeddings: (m, dim) floats, as `embeddings`.
            self_positions: (n,) integers, the reference that is the anchor itself, which it is not
                paired with; -1 if none is.

        Returns:
            A scalar.
        """
        raise NotImplementedError


class LearnedLoss(MetricLoss, keras.layers.Layer):
    """Base class of losses with trainable weights, held in a Keras layer.

    A subclass holds its weights in `layer` and implements `call(labels, embeddings, training)`.
    One whose layer scores pairs of rows returns that layer as `similarity_layer` and implements
    `similarity(a, b)`. `tfdml.EmbeddingModel` trains, saves and restores the layers. As the loss is
    a Keras layer too, a model or a layer of which it is an attribute also does.

    Copies, by `copy.deepcopy` or `pickle`, have the weights.

    Attributes:
        layer: The Keras layer; None if there is nothing to learn.
        layers: All trainable layers, including those of losses inside it.
    """

    layer: Any  # no attribute of the class, which on PyTorch would hide that of a loss
    similarity_layer = None
    _width = None  # of the embeddings, in the file that is loaded

    def __init__(self, *, normalize, name=None):
        keras.layers.Layer.__init__(self, name=name)
        super().__init__(normalize=normalize, name=name)

    @property
    def layers(self):
        layer = getattr(self, "layer", None)
        return [] if layer is None else [layer]

    def get_build_config(self):
        """What Keras saves to build the layers again, before it restores their weights."""
        built = [layer.get_build_config() if layer.built else None for layer in self.layers]
        return {"layers": built} if any(built) else None

    def build_from_config(self, config):
        for layer, built in zip(self.layers, config["layers"], strict=True):
            if built is not None and not layer.built:
                layer.build_from_config(built)

    def save_own_variables(self, store):
        """Saves the width of embeddings too, for `load_own_variables` to build the layers."""
        super().save_own_variables(store)
        for layer in self.layers:
            shape = layer.built and (layer.get_build_config() or {}).get("input_shape")
            if shape:
                store["width"] = shape[-1]
                break

    def load_own_variables(self, store):
        saved = dict(store)
        # Keras tries again by another path, with nothing saved, where this raises an error.
        self._width = saved.pop("width", self._width)
        for layer in self.layers:
            if self._width is not None and not layer.built:
                layer.build((None, int(self._width)))
        super().load_own_variables(saved)

    @property
    def learns_similarity(self):
        return self.similarity_layer is not None

    def similarity(self, a, b):
        """The learned score of each row of `a` (n, dim) and the same row of `b` (n, dim): (n,)."""
        raise NotImplementedError

    def call(self, labels, embeddings, training=False):
        raise NotImplementedError

    def _value(self, labels, embeddings, training, **weights):
        return self.call(labels, embeddings, training=training, **weights)


def _serialized(value):
    return keras.saving.serialize_keras_object(value) if hasattr(value, "get_config") else value


def _deserialized(value):
    is_part = isinstance(value, dict) and "class_name" in value
    return keras.saving.deserialize_keras_object(value) if is_part else value


def _are_sets(labels):
    """Whether labels are several a row, of 0 and 1, rather than ids."""
    return len(labels.shape) == 2 and labels.shape[1] != 1


def check_integers(labels, embeddings=None):
    """Raises a TypeError unless labels are integers, which says how to convert others.

    Args:
        labels: Array or tensor.
        embeddings: Array or tensor; integers hint at swapped arguments.
    """
    dtype = _dtype(labels)
    expected = "`labels` must be integers, one class id per row"
    swapped = embeddings is not None and "int" in _dtype(embeddings)
    advice = "" if swapped else conversion("labels", np.shape(labels), dtype)
    hint = " (arguments swapped?)" if swapped else ""
    check_type("int" in dtype, expected + advice, dtype=Bare(dtype + hint))


def ids_of_images(labels, num_classes):
    """Labels of training images as (n,) int64, and the number of classes.

    Raises an error unless they are ids of classes, `num_classes` of them if that is not None.
    """
    labels = np.asarray(labels)
    check_integers(labels)
    expectation = "`labels` must be one class id per image, (n,)"
    check_shapes(labels.ndim == 1 and labels.size, expectation, labels=labels)
    check(labels.min() >= 0, "`labels` must be >= 0", labels=int(labels.min()))
    classes = int(labels.max()) + 1
    expectation = "the loss must know as many classes as there are to train"
    check(num_classes in (None, classes), expectation, num_classes=num_classes, classes=classes)
    return labels.astype("int64"), classes


def _dtype(values):
    """Name of the dtype of an array, or of a tensor of any backend."""
    if ops.is_tensor(values):
        return keras.backend.standardize_dtype(values.dtype)
    return str(np.asarray(values).dtype)


def _known(labels, num_classes):
    """Labels, with 0 in place of those of no class, and whether all were of a class."""
    known = (labels >= 0) & (labels < num_classes)
    expectation = f"labels must be from 0 to {num_classes - 1}"
    return ops.where(known, labels, 0), pairwise.asserted(ops.all(known), expectation, labels)


def _as_embeddings(embeddings):
    if not ops.is_tensor(embeddings):
        embeddings = np.asarray(embeddings)
    dtype = _dtype(embeddings)
    check_type("float" in dtype, "`embeddings` must be floats", dtype=Bare(dtype))
    expectation = "`embeddings` must have the shape (batch, dim)"
    check_shapes(len(embeddings.shape) == 2, expectation, embeddings=embeddings)
    return ops.convert_to_tensor(embeddings, dtype="float64" if dtype == "float64" else "float32")


def _of_rows(sample_weight, embeddings):
    """Weights of rows as (batch,) numbers of the dtype of the embeddings."""
    weights = ops.convert_to_tensor(sample_weight, dtype=embeddings.dtype)
    rows = (embeddings.shape[0], None)
    expectation = "`sample_weight` must be (batch,) or (batch, 1), a number for each row"
    valid = len(weights.shape) == 1 or (len(weights.shape) == 2 and weights.shape[1] == 1)
    valid = valid and (weights.shape[0] in rows or rows[0] is None)
    check_shapes(valid, expectation, sample_weight=weights, embeddings=embeddings)
    return ops.reshape(weights, (-1,))


def _builds_for_replicas():
    """Whether Keras builds a model for a `tf.distribute` strategy, outside the replicas.

    Labels are then averages over replicas: floats, which nothing compares.
    """
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context()


def _of_all_replicas(labels, embeddings) -> tuple:
    if keras.backend.backend() != "tensorflow":
        return labels, embeddings
    from tfdml.layers.gathering import of_all_replicas

    return of_all_replicas(labels, embeddings)


def _share_of_replica(value):
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if not tf.distribute.in_cross_replica_context():
            value = value / tf.distribute.get_strategy().num_replicas_in_sync
    return value
