from keras import layers


def exit_features(maps, name):
    """What an embedding at an early exit of a network is made of.

    5 × 5 average pooling every 3 pixels, a 1 × 1 convolution to 128 channels with ReLU, and 1,024
    fully connected units with ReLU: the auxiliary branch of GoogLeNet. Where the windows do not
    fit the maps they reach over the border, and average the pixels that there are.

    Args:
        maps: (batch, height, width, channels) floats, of known height and width.
        name: Name of the exit, before that of its layers.

    Returns:
        (batch, 1024) floats.

    Source:
        Szegedy et al. Going deeper with convolutions. CVPR 2015, section 5.
        Yuan, Yang, Zhang. Hard-aware deeply cascaded embedding. ICCV 2017, section 4.2.
        Differs: the paper's images always give maps that the windows fit.
    """
    fits = all(side >= 5 and (side - 5) % 3 == 0 for side in maps.shape[1:3])
    x = layers.AveragePooling2D(5, 3, "valid" if fits else "same", name=f"{name}_pool")(maps)
    x = layers.Conv2D(128, 1, activation="relu", name=f"{name}_conv")(x)
    x = layers.Flatten(name=f"{name}_flatten")(x)
    return layers.Dense(1024, activation="relu", name=f"{name}_fc")(x)
