import keras
from keras import ops

from tfdml.checks import check_integer
from tfdml.layers.kept_options import KeepsOptions


@keras.saving.register_keras_serializable("tfdml")
class Draws(KeepsOptions):
    """Uniform random numbers, whose state is saved with a model.

    Args:
        seed: Integer.
    """

    def __init__(self, seed=0, name="draws", **kwargs):
        super().__init__(name=name, **{"trainable": False, **kwargs})
        [self.seed] = check_integer(seed=seed)

    def build(self, input_shape=None):
        # Not earlier: built by `compile`, in the scope of a strategy, all replicas draw the same.
        self.generator = keras.random.SeedGenerator(self.seed)
        self.built = True

    def uniform(self, shape, dtype="float32"):
        """Floats from 0 to below 1, new ones with each call."""
        if not self.built:
            self.build()
        return keras.random.uniform(shape, dtype=dtype, seed=self.generator)

    def save_own_variables(self, store):  # Keras saves no state of generators
        if self.built:
            store["state"] = ops.convert_to_numpy(self.generator.state)

    def load_own_variables(self, store):
        if self.built:
            self.generator.state.assign(store["state"])


@keras.saving.register_keras_serializable("tfdml")
class ClassSampler(Draws):
    """Draws classes at random, those of a batch among them; its state is saved with a model.

    Args:
        seed: Integer.

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


@keras.saving.register_keras_serializable("tfdml")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` whose random state is saved: a resumed run continues its draws.

    On PyTorch it needs a `seed`: without one Keras draws from the generator of PyTorch.

    Args:
        *args, **kwargs: Arguments of `keras.layers.Dropout`.

    Call:
        inputs: Floats of any shape.
        training: Whether to drop; else the inputs are returned as they are.
        Returns floats of the same shape.

    Example:
        >>> print(np.asarray(Dropout(0.5)(np.array([1.0, 2.0]))))
        [1. 2.]
    """

    def save_own_variables(self, store):  # Keras saves no state of generators
        if self.rate > 0:
            store["state"] = ops.convert_to_numpy(self.seed_generator.state)

    def load_own_variables(self, store):
        if self.rate > 0 and "state" in store.keys():  # noqa: SIM118, not a dict; none in earlier files
            self.seed_generator.state.assign(store["state"])
