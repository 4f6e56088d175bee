import keras

from tfdml import pairwise


@keras.saving.register_keras_serializable("tfdml")
class UnitLength(keras.layers.Layer):
    """Scales every row to unit length; zero rows stay zero.

    Differs from `keras.layers.UnitNormalization`: the gradient of a zero row is 0, not 1e12 or NaN.

    Call:
        inputs: (batch, ..., dim) floats.
        Returns (batch, ..., dim) floats.
    """

    def call(self, inputs):
        return pairwise.normalize(inputs)
