import keras
from keras import ops

from tfdml.checks import check_positive
from tfdml.layers.kept_options import KeepsOptions


@keras.saving.register_keras_serializable("tfdml")
class GeneralizedMean(KeepsOptions):
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
        [self.p] = check_positive(p=p)

    def build(self, input_shape):
        constant = keras.initializers.Constant(self.p)
        self.exponent = self.add_weight(shape=(), initializer=constant, name="exponent")

    def call(self, inputs):
        places = tuple(range(1, len(inputs.shape) - 1))
        power = ops.cast(self.exponent, inputs.dtype)
        return ops.mean(ops.maximum(inputs, 1e-6) ** power, axis=places) ** (1 / power)
