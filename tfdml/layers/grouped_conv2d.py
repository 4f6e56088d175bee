import keras
from keras import ops


@keras.saving.register_keras_serializable("tfdml")
class GroupedConv2D(keras.layers.Conv2D):
    """`keras.layers.Conv2D` that convolves its groups one by one.

    On a CPU, TensorFlow supports grouped convolutions only through XLA, which is slow there and
    missing in some servers of SavedModels.

    Args:
        *args, **kwargs: Arguments of `keras.layers.Conv2D`, including `groups`.

    Call:
        inputs: (batch, height, width, channels) floats, or as `data_format` says.
        Returns (batch, height, width, filters) floats, in the same format.

    Example:
        >>> layer = GroupedConv2D(4, 1, groups=2, kernel_initializer="ones")
        >>> print(np.asarray(layer(np.array([[[[1.0, 10.0]]]]))))
        [[[[ 1.  1. 10. 10.]]]]
    """

    def convolution_op(self, inputs, kernel):
        channels = -1 if self.data_format == "channels_last" else 1
        groups = zip(
            ops.split(inputs, self.groups, axis=channels),
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
        return ops.concatenate(maps, axis=channels)
