from keras import layers


def exit_features(maps, name):
    """Features for an embedding at an early exit of a network.

    5 × 5 average pooling with stride 3, a 1 × 1 convolution to 128 channels with ReLU, and 1,024
    fully connected units with ReLU: the auxiliary branch of GoogLeNet. Windows that do not fit
    extend beyond the border and average the pixels inside the maps.

    Args:
        maps: (batch, height, width, channels) floats, of known height and width.
        name: Name of the exit, used as a prefix of its layers.

    Returns:
        (batch, 1024) floats.

    Source:
        Szegedy et al. Going deeper with convolutions. CVPR 2015, section 5.
        Yuan, Yang, Zhang. Hard-aware deeply cascaded embedding. ICCV 2017, section 4.2.
        Differs: the windows always fit the maps of the paper's images.
    """
    fits = all(side >= 5 and (side - 5) % 3 == 0 for side in maps.shape[1:3])
    x = layers.AveragePooling2D(5, 3, "valid" if fits else "same", name=f"{name}_pool")(maps)
    x = layers.Conv2D(128, 1, activation="relu", name=f"{name}_conv")(x)
    x = layers.Flatten(name=f"{name}_flatten")(x)
    return layers.Dense(1024, activation="relu", name=f"{name}_fc")(x)
