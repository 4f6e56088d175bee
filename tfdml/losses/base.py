"""The contract of every objective: integer labels, one embedding per row, one number out."""

import keras
import numpy as np
from keras import ops

from tfdml import pairwise
from tfdml.checks import check, check_type

_NOT_GIVEN = object()


class MetricLoss(keras.losses.Loss):
    """Base of the objectives over all rows of a batch at once.

    A subclass writes `call(labels, embeddings)`, which returns a scalar. Labels reach it as
    (batch,) integers, embeddings as (batch, dim) float32 (float64 stays), unit length if
    `normalize`. The options a subclass stores under its own attribute names and lists in
    `options`, from which `get_config` rebuilds it. One that learns something owns it as a Keras
    layer in `layer`, and writes `call(labels, embeddings, training)`; where that layer scores
    pairs, it also has `similarity(a, b)` and `similarity_layer`. One for several exits of a
    network says in `levels` of how many parts an embedding is made. One that keeps something of
    each class says in `num_classes` how many there are.

    Differs: Keras casts labels to float, which merges class ids from 2**24 on; here they stay
    integers. Keras weights samples; the terms here are pairs, so `sample_weight` is refused.

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
            y_pred: (batch, dim) floats, the embedding of each row. Without `normalize` of
                norms up to 1e18, whose squares are float32 numbers.
            sample_weight: Must be None.
            training: Whether what the loss learns, where it does, is in training.

        Returns:
            A scalar float32 (float64 for float64 embeddings), NaN if any embedding is. In a
            replica of a `tf.distribute` strategy it is divided by the number of replicas, as
            Keras does for its own losses, so that the replicas' gradients add up to their mean.

        Raises:
            TypeError: If the labels are not integers or the embeddings not floats.
            ValueError: If the shapes disagree, the batch is empty, `sample_weight` is given or a
                label is not below `num_classes`; with layers, when called by a plain
                `keras.Model`, which would not train them.
        """
        if sample_weight is not None and sample_weight is not _NOT_GIVEN:
            raise ValueError(
                f"{type(self).__name__} takes no `sample_weight`: its terms are pairs and tuples "
                "of rows, not rows. Choose what counts by the sampler."
            )
        if self.layers and sample_weight is None:  # Keras gives it, people do not
            raise ValueError(
                f"{type(self).__name__} learns a layer of its own, {self.layers[0].name!r}, which "
                "a plain keras.Model does not train. Compile it into tfdml.EmbeddingModel."
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
            "the batch must hold a row or more",
            **{"embeddings.shape": tuple(embeddings.shape)},
        )
        with keras.name_scope(self.name):
            if self.normalize:
                embeddings = self.unit_rows(embeddings)
            value = self._value(labels, embeddings, training)
            # A row that no term takes is not in the value, but must not hide that it is broken.
            broken = ops.where(ops.isnan(ops.sum(embeddings)), float("nan"), 0.0)
            return _share_of_replica(value + ops.cast(broken, value.dtype))

    @property
    def layers(self):
        """All layers that the loss learns, its own and those of losses inside it."""
        return [] if self.layer is None else [self.layer]

    @property
    def learns_similarity(self):
        """Whether it learns a similarity of rows, that `similarity(a, b)` gives."""
        return self.similarity_layer is not None

    def unit_rows(self, embeddings):
        """The embeddings as `normalize` makes them."""
        return pairwise.normalize(embeddings)

    def call(self, labels, embeddings):
        raise NotImplementedError

    def _value(self, labels, embeddings, training):
        """What `call` gives, told whether it trains if the loss learns something."""
        learned = {"training": training} if self.layers else {}
        return self.call(labels, embeddings, **learned)

    def get_config(self):
        return {"name": self.name, **{option: getattr(self, option) for option in self.options}}


def _as_labels(labels, embeddings, num_classes):
    if not ops.is_tensor(labels):
        labels = np.asarray(labels)
        _check_integers(labels, embeddings)
        if num_classes is None:
            # JAX keeps 32 bits of an integer: renumber before they are lost.
            labels = np.unique(labels, return_inverse=True)[1].reshape(labels.shape)
        else:
            check(
                labels.size == 0 or (labels.min() >= 0 and labels.max() < num_classes),
                f"`labels` must be from 0 to {num_classes - 1}, the classes of the loss",
                labels=_Bare(f"{labels.min()} to {labels.max()}" if labels.size else "none"),
            )
        labels = ops.convert_to_tensor(labels.astype("int32"))
    if _builds_for_replicas():
        labels = ops.cast(labels, "int64")
    _check_integers(labels, embeddings)
    dtype = _dtype(labels)
    if dtype not in ("int32", "int64"):  # TensorFlow takes no others as indices
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
    check_type("int" in dtype, "`labels` must be integers", dtype=_Bare(dtype + hint))


def _dtype(values):
    """Name of the dtype of an array, or of a tensor of any backend."""
    if ops.is_tensor(values):
        return keras.backend.standardize_dtype(values.dtype)
    return str(np.asarray(values).dtype)


def _as_embeddings(embeddings):
    if not ops.is_tensor(embeddings):
        embeddings = np.asarray(embeddings)
    dtype = _dtype(embeddings)
    check_type("float" in dtype, "`embeddings` must be floats", dtype=_Bare(dtype))
    check(
        len(embeddings.shape) == 2,
        "`embeddings` must have the shape (batch, dim)",
        **{"embeddings.shape": tuple(embeddings.shape)},
    )
    return ops.convert_to_tensor(embeddings, dtype="float64" if dtype == "float64" else "float32")


def _builds_for_replicas():
    """Whether Keras builds a model for a `tf.distribute` strategy, outside the replicas.

    It then averages the replicas' labels, floats that nobody compares.
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


class _Bare(str):
    """A string that an error message shows without quotes."""

    __repr__ = str.__str__
