import keras
from keras import ops


@keras.saving.register_keras_serializable("tfdml")
class ClassSampler(keras.layers.Layer):
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

    decays = False

    def __init__(self, seed=0, name="class_sampler", **kwargs):
        super().__init__(name=name, **{"trainable": False, **kwargs})
        self.seed = int(seed)
        self.generator = keras.random.SeedGenerator(self.seed)

    def build(self, input_shape=None):
        self.built = True

    def call(self, labels, num_classes, count):
        scores = keras.random.uniform((num_classes,), seed=self.generator)
        labels = ops.cast(labels, "int32")
        found = ops.full_like(labels, 2, dtype="float32")  # above every draw
        _, classes = ops.top_k(ops.scatter_update(scores, labels[:, None], found), count)
        classes = ops.cast(classes, "int32")
        places = ops.zeros((num_classes,), dtype="int32")
        places = ops.scatter_update(places, classes[:, None], ops.arange(count, dtype="int32"))
        return classes, ops.take(places, labels)

    def save_own_variables(self, store):  # Keras saves no state of generators
        store["state"] = ops.convert_to_numpy(self.generator.state)

    def load_own_variables(self, store):
        self.generator.state.assign(store["state"])

    def get_config(self):
        return {**super().get_config(), "seed": self.seed}
