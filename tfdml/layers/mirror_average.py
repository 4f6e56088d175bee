import keras
from keras import ops, tree


@keras.saving.register_keras_serializable("tfdml")
class MirrorAverage(keras.layers.Wrapper):
    """Averages the outputs of a network for images and their mirror images, except in training.

    A car facing left and one facing right then have similar embeddings, in twice the time. In
    training the network gets only the images, half of which augmentation mirrors.

    Args:
        layer: The network, from images to one or several tensors of features.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call:
        images: (n, height, width, channels) floats.
        training: Whether to run in training mode.
        Returns the same structure as the network.

    Source:
        Krizhevsky, Sutskever, Hinton. ImageNet classification with deep convolutional neural
        networks. NIPS 2012, section 4.1, which averages predictions in this way.

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
