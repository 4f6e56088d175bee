import keras
import numpy as np
from keras import ops

from tfdml.checks import check, check_finite, check_integer, check_not_negative, check_positive
from tfdml.layers.kept_options import KeepsOptions


@keras.saving.register_keras_serializable("tfdml")
class LocalResponseNormalization(KeepsOptions):
    """Local response normalization: divides each channel by the energy of adjacent channels.

    With n = 2 `depth_radius` + 1 channels around channel c, fewer at either end:

        y[c] = x[c] / (bias + alpha / n * sum of x[i]² over |i - c| <= depth_radius) ** beta

    It has no weights, and computes in float32 under mixed precision. The sum is a product with a
    channels × channels matrix, the fastest way on a CPU for hundreds of channels.

    Args:
        depth_radius: Number of channels on either side; >= 0.
        alpha: Weight of the mean square; >= 0. As in Caffe, it is divided by n;
            `tf.nn.local_response_normalization` takes alpha / n.
        beta: Exponent.
        bias: Constant added before taking the power; > 0.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call:
        inputs: (batch, ..., channels) floats, with a known number of channels.
        Returns floats of the same shape.

    Raises:
        ValueError: If the number of channels is not known.

    Source:
        Krizhevsky, Sutskever, Hinton. ImageNet classification with deep convolutional neural
        networks. NIPS 2012, section 3.3.
        Differs: alpha is divided by n, and the defaults are those of Caffe's networks.

    Example:
        >>> layer = LocalResponseNormalization(depth_radius=0, alpha=1.0, beta=0.5)
        >>> print(np.round(np.asarray(layer(np.array([[0.0, 0.75, 7.5]]))), 3))
        [[0.    0.6   0.991]]
    """

    def __init__(self, depth_radius=2, alpha=1e-4, beta=0.75, bias=1.0, **kwargs):
        super().__init__(**kwargs)
        [self.depth_radius] = check_integer(0, depth_radius=depth_radius)
        [self.alpha] = check_not_negative(alpha=alpha)
        [self.beta] = check_finite(beta=beta)
        [self.bias] = check_positive(bias=bias)

    def build(self, input_shape):
        channels = input_shape[-1]
        expectation = "`inputs` must have a known number of channels"
        check(channels is not None, expectation, shape=input_shape)
        index = np.arange(channels)
        beside = np.abs(index[:, None] - index) <= self.depth_radius
        self._mean_weights = self.alpha / (2 * self.depth_radius + 1) * beside

    def call(self, inputs):
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        x = inputs if dtype == "float64" else ops.cast(inputs, "float32")
        # Not `ops.matmul`, which on PyTorch turns float64 into float32.
        energy = ops.square(x) @ ops.cast(self._mean_weights, x.dtype)
        outputs = x * ops.exp(-self.beta * ops.log(self.bias + energy))
        return ops.cast(outputs, self.compute_dtype)
