"""Base class of all losses: integer labels and one embedding per row in, a scalar out."""

import keras
import numpy as np
from keras import ops

from tfdml import pairwise
from tfdml.checks import Bare, check, check_type

_NOT_GIVEN = object()


class MetricLoss(keras.losses.Loss):
    """Base class of losses over all rows of a batch at once.

    A subclass implements `call(labels, embeddings)`, which returns a scalar. It gets labels as
    (batch,) integers and embeddings as (batch, dim) float32 (float64 stays), of unit length if
    `normalize`. It stores its options as attributes of the same names and lists these in `options`,
    for `get_config`. A loss with trainable weights holds them in a Keras layer, `layer`, and
    implements `call(labels, embeddings, training)`; if that layer scores pairs, the loss also has
    `similarity(a, b)` and `similarity_layer`. A loss for several exits of a network sets `levels`
    to the number of parts of an embedding. A loss with values per class sets `num_classes`.

    Differs: Keras casts labels to float, which merges class ids from 2**24 on; here they stay
    integers. Keras weights samples; the terms here are pairs, so `sample_weight` is rejected.

    Args:
        normalize: Whether rows are scaled to unit length first.
        name: Name of the loss in logs.
    """

    options = ("normalize",)
    layer = None
    similarity_layer = None
    levels = 1  # equal parts of an embedding, each with a loss of its own
    num_classes = None  # labels are any ids; or 0 to num_classes - 1

    def __init__(self, *, normalize, name=None):
        super().__init__(name=name, reduction="sum_over_batch_size")
        check_type(isinstance(normalize, bool), "`normalize` must be a bool", normalize=normalize)
        self.normalize = normalize

    def __call__(self, y_true, y_pred, sample_weight=_NOT_GIVEN, training=False):
        """The loss of one batch.

        Args:
            y_true: (batch,) or (batch, 1) integers, the class id of each row.
            y_pred: (batch, dim) floats, the embedding of each row. Without `normalize`, norms up
                to 1e18 are supported, as their squares are in the range of float32.
            sample_weight: Must be None.
            training: Whether layers of the loss, if any, run in training mode.

        Returns:
            A scalar float32 (float64 for float64 embeddings), NaN if any embedding is. In a
            replica of a `tf.distribute` strategy it is divided by the number of replicas, as
            Keras does for its own losses, so that the replicas' gradients add up to their mean.

        Raises:
            TypeError: If the labels are not integers or the embeddings not floats.
            ValueError: If the shapes disagree, the batch is empty, `sample_weight` is given, a
                label is not below `num_classes`, or a loss with layers is called by a plain
                `keras.Model`, which would not train them.
        """
        if sample_weight is not None and sample_weight is not _NOT_GIVEN:
            raise ValueError(
                f"{type(self).__name__} does not support `sample_weight`: its terms are pairs and "
                "tuples of rows, not rows. Weight samples with the sampler instead."
            )
        if self.layers and sample_weight is None:  # Keras passes it, users do not
            raise ValueError(
                f"{type(self).__name__} has a trainable layer, {self.layers[0].name!r}, which a "
                "plain keras.Model does not train. Compile it with tfdml.EmbeddingModel instead."
            )
        labels = _as_labels(y_true, y_pred, self.num_classes)
        embeddings = _as_embeddings(y_pred)
        check(
            labels.shape[0] == embeddings.shape[0]
            or None in (labels.shape[0], embeddings.shape[0]),
            "`labels` and `embeddings` must have the same batch size",
            **{"labels.shape": tuple(labels.shape), "embeddings.shape": tuple(embeddings.shape)},
        )
        check(
            embeddings.shape[0] != 0,
            "the batch must not be empty",
            **{"embeddings.shape": tuple(embeddings.shape)},
        )
        with keras.name_scope(self.name):
            if self.normalize:
                embeddings = self.unit_rows(embeddings)
            value = self._value(labels, embeddings, training)
            # NaN in a row that no term uses would not show in the value otherwise.
            broken = ops.where(ops.isnan(ops.sum(embeddings)), float("nan"), 0.0)
            return _share_of_replica(value + ops.cast(broken, value.dtype))

    @property
    def layers(self):
        """All trainable layers of the loss, including those of losses inside it."""
        return [] if self.layer is None else [self.layer]

    @property
    def learns_similarity(self):
        """Whether it learns a similarity of rows, which `similarity(a, b)` returns."""
        return self.similarity_layer is not None

    def unit_rows(self, embeddings):
        """The embeddings scaled to unit length, as with `normalize`."""
        return pairwise.normalize(embeddings)

    def call(self, labels, embeddings):
        raise NotImplementedError

    def _value(self, labels, embeddings, training):
        """The result of `call`, which gets `training` if the loss has layers."""
        learned = {"training": training} if self.layers else {}
        return self.call(labels, embeddings, **learned)

    def get_config(self):
        return {"name": self.name, **{option: getattr(self, option) for option in self.options}}


def _as_labels(labels, embeddings, num_classes):
    if not ops.is_tensor(labels):
        labels = np.asarray(labels)
        _check_integers(labels, embeddings)
        if num_classes is None:
            # Renumbered, as JAX truncates integers to 32 bits.
            labels = np.unique(labels, return_inverse=True)[1].reshape(labels.shape)
        else:
            check(
                labels.size == 0 or (labels.min() >= 0 and labels.max() < num_classes),
                f"`labels` must be from 0 to {num_classes - 1}, the classes of the loss",
                labels=Bare(f"{labels.min()} to {labels.max()}" if labels.size else "none"),
            )
        labels = ops.convert_to_tensor(labels.astype("int32"))
    if _builds_for_replicas():
        labels = ops.cast(labels, "int64")
    _check_integers(labels, embeddings)
    dtype = _dtype(labels)
    if dtype not in ("int32", "int64"):  # TensorFlow accepts no others as indices
        labels = ops.cast(labels, "int64" if dtype in ("uint32", "uint64") else "int32")
    rank = len(labels.shape)
    check(
        rank == 1 or (rank == 2 and labels.shape[1] == 1),
        "`labels` must have the shape (batch,) or (batch, 1)",
        **{"labels.shape": tuple(labels.shape)},
    )
    return ops.reshape(labels, (-1,))


def _check_integers(labels, embeddings):
    dtype = _dtype(labels)
    hint = " (arguments swapped?)" if "int" in _dtype(embeddings) else ""
    check_type("int" in dtype, "`labels` must be integers", dtype=Bare(dtype + hint))


def _dtype(values):
    """Name of the dtype of an array, or of a tensor of any backend."""
    if ops.is_tensor(values):
        return keras.backend.standardize_dtype(values.dtype)
    return str(np.asarray(values).dtype)


def _as_embeddings(embeddings):
    if not ops.is_tensor(embeddings):
        embeddings = np.asarray(embeddings)
    dtype = _dtype(embeddings)
    check_type("float" in dtype, "`embeddings` must be floats", dtype=Bare(dtype))
    check(
        len(embeddings.shape) == 2,
        "`embeddings` must have the shape (batch, dim)",
        **{"embeddings.shape": tuple(embeddings.shape)},
    )
    return ops.convert_to_tensor(embeddings, dtype="float64" if dtype == "float64" else "float32")


def _builds_for_replicas():
    """Whether Keras builds a model for a `tf.distribute` strategy, outside the replicas.

    Labels are then averages over replicas: floats, which nothing compares.
    """
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context()


def _share_of_replica(value):
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if not tf.distribute.in_cross_replica_context():
            value = value / tf.distribute.get_strategy().num_replicas_in_sync
    return value
