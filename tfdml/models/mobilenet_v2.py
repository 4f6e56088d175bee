import warnings

import keras

from tfdml.checks import check


def mobilenet_v2(inputs, weights=None):
    """MobileNetV2 (width 1.0) up to its average-pooled 1280 features.

    With pretrained weights its batch normalisation is frozen: class-balanced batches of a few
    classes have statistics of their own, which the test images do not share.

    Args:
        inputs: (batch, height, width, 3) floats in [0, 255].
        weights: None, `"imagenet"` (Keras downloads them) or the path of a Keras weights file
            without top.

    Returns:
        (batch, 1280) floats.

    Raises:
        OSError: If Keras cannot download the weights.
        ValueError: If there are weights and the images have not 3 channels, or the file does not
            hold the weights of this network.

    Source:
        Sandler et al. MobileNetV2: inverted residuals and linear bottlenecks. CVPR 2018.
    """
    check(
        weights is None or inputs.shape[-1] == 3,
        "pretrained weights need images of 3 channels",
        weights=weights,
        channels=inputs.shape[-1],
    )
    try:
        network = keras.applications.MobileNetV2(
            input_shape=inputs.shape[1:],
            include_top=False,
            weights=weights if weights == "imagenet" else None,
            pooling="avg",
            name="mobilenet_v2",
        )
    except Exception as error:
        if "URL fetch failure" not in str(error):  # which has no class of its own
            raise
        sentence = f"{error}. Download that file elsewhere and give its path as `weights`"
        raise OSError(sentence) from error
    if weights not in (None, "imagenet"):
        _load_weights(network, weights)
    if weights is not None:
        # Not by `training=False`, which Keras overrides when the whole model trains.
        for layer in network.layers:
            layer.trainable = not isinstance(layer, keras.layers.BatchNormalization)
    return network(keras.layers.Rescaling(1 / 127.5, offset=-1.0)(inputs))


def _load_weights(network, path):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # Keras's, for layers that the file lacks
            network.load_weights(path)
    except Exception as error:  # what h5py, zipfile and Keras raise has no common class
        raise ValueError(
            "`weights` must be a Keras weights file of MobileNetV2 without top. "
            f"Received: weights={str(path)!r}"
        ) from error
