from keras import layers

from tfdml.layers import FusedBatchNormalization
from tfdml.models.caffe import exit_features


def small_cnn(inputs, weights=None, levels=1):
    """Four convolutions, for small images such as characters or digits.

    Each block is a 3 × 3 convolution of 64 filters, batch normalisation, ReLU and, while the
    image is at least 2 pixels high and wide, 2 × 2 max pooling. At 28 × 28 the features are the
    3 × 3 × 64 values before a last pooling. The exits lie after the third block and the second.

    Source:
        The four-block network of Vinyals et al., Matching networks for one shot learning,
        NIPS 2016, section 4.1.1. Differs: no pooling after the last block, and the moving averages
        forget their initial values in a run of 100 steps; with Keras' 0.99 these still weigh 0.37.
    """
    x, maps = layers.Rescaling(1 / 127.5, offset=-1.0)(inputs), []
    for block in range(1, 5):
        x = layers.Conv2D(64, 3, padding="same", use_bias=False, name=f"conv{block}")(x)
        x = FusedBatchNormalization(momentum=0.9, name=f"bn{block}")(x)
        if block < 4 and min(x.shape[1:3]) >= 2:
            x = layers.MaxPooling2D(name=f"pool{block}")(x)
        x = layers.ReLU(name=f"relu{block}")(x)  # after the pooling: the same for a quarter of it
        maps.append(x)
    exits = enumerate(maps[4 - levels : 3], start=1)
    return [
        *(exit_features(x, f"exit{number}") for number, x in exits),
        layers.Flatten(name="features")(maps[-1]),
    ]
