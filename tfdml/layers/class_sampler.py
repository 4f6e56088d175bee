import keras
from keras import ops

from tfdml.layers.draws import Draws


@keras.saving.register_keras_serializable("tfdml")
class ClassSampler(Draws):
    """Draws classes at random, those of a batch among them; its state is saved with a model.

    Args:
        seed: Integer.
        name: Name of the layer.

    Call:
        labels: (batch,) integers from 0 to `num_classes - 1`.
        num_classes: Number of classes.
        count: Number of classes to draw, at least those of the batch.
        Returns the (count,) classes, and the (batch,) places of the labels among them.
    """

    def __init__(self, seed=0, name="class_sampler", **kwargs):
        super().__init__(seed, name, **kwargs)

    def call(self, labels, num_classes, count):
        scores = self.uniform((num_classes,))
        labels = ops.cast(labels, "int32")
        found = ops.full_like(labels, 2, dtype="float32")  # above every draw
        _, classes = ops.top_k(ops.scatter_update(scores, labels[:, None], found), count)
        classes = ops.cast(classes, "int32")
        places = ops.zeros((num_classes,), dtype="int32")
        places = ops.scatter_update(places, classes[:, None], ops.arange(count, dtype="int32"))
        return classes, ops.take(places, labels)
