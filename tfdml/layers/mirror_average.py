import keras
from keras import ops, tree


@keras.saving.register_keras_serializable("tfdml")
class MirrorAverage(keras.layers.Wrapper):
    """Averages, outside training, what a network makes of images and of their mirror images.

    A car that looks left and one that looks right then have like embeddings, for twice the time. In
    training the network sees the images alone, of which augmentation mirrors half.

    Args:
        layer: The network, from images to a tensor of features or several.
        **kwargs: Those of `keras.layers.Layer`.

    Call:
        images: (n, height, width, channels) floats.
        training: Whether it trains.
        Returns what the network returns.

    Source:
        Krizhevsky, Sutskever, Hinton. ImageNet classification with deep convolutional neural
        networks. NIPS 2012, section 4.1, which averages predictions so.

    Example:
        >>> layer = MirrorAverage(keras.layers.Flatten())
        >>> print(np.asarray(layer(np.array([[[[1.0], [3.0]]]]))))
        [[2. 2.]]
    """

    def call(self, images, training=False):
        features = self.layer(images, training=training)
        if training:
            return features
        mirrored = self.layer(ops.flip(images, axis=2), training=False)
        return tree.map_structure(lambda a, b: 0.5 * (a + b), features, mirrored)

    def compute_output_shape(self, images_shape):
        return self.layer.compute_output_shape(images_shape)
