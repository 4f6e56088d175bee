import keras
from keras import ops


@keras.saving.register_keras_serializable("tfdml")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` whose random state is saved: a resumed run continues its draws.

    On PyTorch it needs a `seed`: without one Keras draws from the generator of PyTorch.

    Args:
        *args: Arguments of `keras.layers.Dropout`.
        **kwargs: Arguments of `keras.layers.Dropout`.

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
