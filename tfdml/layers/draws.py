import keras
from keras import ops

from tfdml.checks import check_integer


@keras.saving.register_keras_serializable("tfdml")
class Draws(keras.layers.Layer):
    """Uniform random numbers, whose state is saved with a model.

    Args:
        seed: Integer.
        name: Name of the layer.

    Raises:
        TypeError: If `seed` is not an integer.
    """

    def __init__(self, seed=0, name="draws", **kwargs):
        super().__init__(name=name, **{"trainable": False, **kwargs})
        check_integer(seed=seed)
        self.seed = int(seed)

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

    def get_config(self):
        return {**super().get_config(), "seed": self.seed}
