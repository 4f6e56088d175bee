from keras import layers

from tfdml.checks import check


def small_cnn(inputs, weights=None):
    """Four convolutions for small images: characters, digits.

    Each block is a 3 × 3 convolution of 64 filters, batch normalisation, ReLU and, while the
    image is at least 2 pixels high and wide, 2 × 2 max pooling. At 28 × 28 the features are the
    3 × 3 × 64 values before a last pooling, flattened.

    Args:
        inputs: (batch, height, width, channels) floats in [0, 255].
        weights: Must be None: nobody publishes weights for it.

    Returns:
        (batch, features) floats.

    Raises:
        ValueError: If `weights` is given.

    Source:
        The four-block network of Vinyals et al., Matching networks for one shot learning,
        NIPS 2016, section 4.1.1. Differs: no pooling after the last block.
    """
    check(weights is None, "`small_cnn` has no pretrained weights", weights=weights)
    x = layers.Rescaling(1 / 127.5, offset=-1.0)(inputs)
    for block in range(1, 5):
        x = layers.Conv2D(64, 3, padding="same", use_bias=False, name=f"conv{block}")(x)
        x = layers.BatchNormalization(name=f"bn{block}")(x)
        x = layers.ReLU(name=f"relu{block}")(x)
        if block < 4 and min(x.shape[1:3]) >= 2:
            x = layers.MaxPooling2D(name=f"pool{block}")(x)
    return layers.Flatten(name="features")(x)
