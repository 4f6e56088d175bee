import keras
from keras import ops

from tfdml.checks import check, check_integer
from tfdml.layers.kept_options import KeepsOptions
from tfdml.pairwise import NOBODY, asserted

_FITS = "`size` of the memory must be at least the batch"


@keras.saving.register_keras_serializable("tfdml")
class EmbeddingMemory(KeepsOptions):
    """The last embeddings and labels that were written, in a ring.

    Args:
        size: Rows that it holds, M; at least a batch.
        dtype: As for every Keras layer, but float32 by default under any policy.

    Attributes:
        rows: (M, dim) floats, not trainable.
        labels: (M,) integers; `tfdml.pairwise.NOBODY` where nothing was written yet.
        steps: Number of batches written so far.
        next: Position of the oldest row, which the next batch overwrites first.

    Call:
        rows: (batch, dim) floats.
        labels: (batch,) integers.
        Writes both over the oldest rows; returns their positions, (batch,) integers.

    Raises:
        ValueError: If `size` is below the batch; InvalidArgumentError if only TensorFlow's graph
            knows the size of the batch.
    """

    def __init__(self, size, name="embedding_memory", **kwargs):
        kwargs = {"dtype": "float32", "trainable": False, **kwargs}
        super().__init__(name=name, autocast=False, **kwargs)
        [self.size] = check_integer(1, size=size)

    def build(self, input_shape):
        def weight(name, shape, start, dtype):
            return self.add_weight(
                name=name,
                shape=shape,
                initializer=keras.initializers.Constant(start),
                dtype=dtype,
                trainable=False,
                aggregation="only_first_replica",
            )

        self.rows = weight("rows", (self.size, input_shape[-1]), 0.0, None)
        ids = "int32" if keras.backend.backend() == "jax" else "int64"
        self.labels = weight("labels", (self.size,), NOBODY, ids)
        self.steps = weight("steps", (), 0, "int32")
        self.next = weight("next", (), 0, "int32")
        self.built = True

    def check_batch(self, batch):
        """Raises a ValueError if a batch of so many rows does not fit."""
        check(batch <= self.size, _FITS, size=self.size, batch=batch)

    def call(self, rows, labels):
        count = ops.shape(rows)[0]
        if isinstance(count, int):
            self.check_batch(count)
        else:
            rows = ops.where(asserted(count <= self.size, _FITS, count), rows, float("nan"))
        places = (self.next + ops.arange(count, dtype="int32")) % self.size
        index = places[:, None]
        rows = ops.cast(ops.stop_gradient(rows), self.rows.dtype)
        self.rows.assign(ops.scatter_update(self.rows, index, rows))
        labels = ops.cast(labels, self.labels.dtype)
        self.labels.assign(ops.scatter_update(self.labels, index, labels))
        self.next.assign((self.next + count) % self.size)
        self.steps.assign(self.steps + 1)
        return places
