import keras
from keras import ops


@keras.saving.register_keras_serializable("tfdml")
class GroupedConv2D(keras.layers.Conv2D):
    """`keras.layers.Conv2D` whose groups are convolved one by one.

    On a CPU, TensorFlow has grouped convolutions in XLA alone, which is slow there and which not
    every server of SavedModels has.

    Args:
        *args: Those of `keras.layers.Conv2D`.
        **kwargs: Those of `keras.layers.Conv2D`, `groups` among them.

    Call:
        inputs: (batch, height, width, channels) floats.
        Returns (batch, height, width, filters) floats.

    Example:
        >>> layer = GroupedConv2D(4, 1, groups=2, kernel_initializer="ones")
        >>> print(np.asarray(layer(np.array([[[[1.0, 10.0]]]]))))
        [[[[ 1.  1. 10. 10.]]]]
    """

    def convolution_op(self, inputs, kernel):
        groups = zip(
            ops.split(inputs, self.groups, axis=-1),
            ops.split(kernel, self.groups, axis=-1),
            strict=True,
        )
        maps = [
            ops.conv(
                *group,
                strides=self.strides,
                padding=self.padding,
                data_format=self.data_format,
                dilation_rate=self.dilation_rate,
            )
            for group in groups
        ]
        return ops.concatenate(maps, axis=-1)
