import keras
from keras import ops

from tfdml.checks import check, check_finite


@keras.saving.register_keras_serializable("tfdml")
class GeneralizedMean(keras.layers.Layer):
    """The generalized mean of each channel over all places, called GeM.

        y[c] = mean(max(x[place, c], 1e-6)**p)**(1 / p)

    p is trained; 1 gives the average of positive features, a large number their maximum.

    Args:
        p: Initial exponent, > 0.

    Call:
        inputs: (batch, height, width, channels) or (batch, places, channels) floats.
        Returns (batch, channels) floats.

    Raises:
        ValueError: If `p` is not > 0.

    Source:
        Radenovic, Tolias, Chum. Fine-tuning CNN image retrieval with no human annotation. TPAMI
        2019, equation 2.
    """

    def __init__(self, p=3.0, **kwargs):
        super().__init__(**kwargs)
        check_finite(p=p)
        check(p > 0, "`p` must be > 0", p=p)
        self.p = float(p)

    def build(self, input_shape):
        constant = keras.initializers.Constant(self.p)
        self.exponent = self.add_weight(shape=(), initializer=constant, name="exponent")

    def call(self, inputs):
        places = tuple(range(1, len(inputs.shape) - 1))
        power = ops.cast(self.exponent, inputs.dtype)
        return ops.mean(ops.maximum(inputs, 1e-6) ** power, axis=places) ** (1 / power)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[-1])

    def get_config(self):
        return {**super().get_config(), "p": self.p}
