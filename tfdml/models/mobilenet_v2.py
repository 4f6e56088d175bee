import keras


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

    Source:
        Sandler et al. MobileNetV2: inverted residuals and linear bottlenecks. CVPR 2018.
    """
    network = keras.applications.MobileNetV2(
        input_shape=inputs.shape[1:],
        include_top=False,
        weights=weights if weights == "imagenet" else None,
        pooling="avg",
        name="mobilenet_v2",
    )
    if weights not in (None, "imagenet"):
        network.load_weights(weights)
    if weights is not None:
        # Not by `training=False`, which Keras overrides when the whole model trains.
        for layer in network.layers:
            layer.trainable = not isinstance(layer, keras.layers.BatchNormalization)
    return network(keras.layers.Rescaling(1 / 127.5, offset=-1.0)(inputs))
