"""Common parts of networks published for Caffe: preprocessing, pooling and weights files."""

import numpy as np
from keras import layers, ops

from tfdml.checks import check
from tfdml.layers import GroupedConv2D

IMAGENET_MEAN = (123.0, 117.0, 104.0)  # of red, green and blue
_NAMED = 5  # largest number of entries of a file listed in an error


def centred_images(inputs, mean=IMAGENET_MEAN):
    """Images, red first, less their mean colour, blue first; not of 3 channels, less its mean."""
    if inputs.shape[-1] != 3:
        return layers.Rescaling(1.0, offset=-float(np.mean(mean)))(inputs)
    return ops.flip(layers.Rescaling(1.0, offset=[-value for value in mean])(inputs), axis=-1)


def max_pool(maps, size, name):
    """Max pooling of all pixels with stride 2, as in Caffe: ceil((side - size) / 2) + 1 windows.

    If the windows, of side 2 or 3, do not fit, the last one extends beyond the border and takes the
    maximum of the pixels inside the image.
    """
    rows, columns = ("same" if (side - size) % 2 else "valid" for side in maps.shape[1:3])
    if rows == columns:
        return layers.MaxPooling2D(size, 2, rows, name=name)(maps)
    maps = layers.MaxPooling2D((size, 1), (2, 1), rows, name=f"{name}_rows")(maps)
    return layers.MaxPooling2D((1, size), (1, 2), columns, name=name)(maps)


def conv(x, filters, size, name, strides=1, padding="same", groups=1):
    """A convolution with ReLU, from He initialisation."""
    kind = GroupedConv2D if groups > 1 else layers.Conv2D
    options = {"activation": "relu", "kernel_initializer": "he_uniform", "groups": groups}
    return kind(filters, size, strides, padding, name=name, **options)(x)


def exit_features(maps, name):
    """Features for an embedding at an early exit of a network.

    5 × 5 average pooling with stride 3, a 1 × 1 convolution to 128 channels with ReLU, and 1,024
    fully connected units with ReLU: the auxiliary branch of GoogLeNet. Windows that do not fit
    extend beyond the border and average the pixels inside the maps.

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


def check_side(inputs, least, network):
    """Raises a ValueError for images of fewer pixels than a network needs."""
    size = tuple(inputs.shape[1:3])
    expectation = f"{network} needs images of {least} × {least} pixels or more"
    check(min(size) >= least, expectation, size=size)


def read_weights(weights):
    """{name: array} of the .npz file of a backbone of `CONVERTED`; without `weights` none."""
    if weights is None:
        return {}
    try:
        with np.load(weights) as file:
            return dict(file)
    except FileNotFoundError:
        raise
    except Exception as error:  # errors of zipfile, zlib and NumPy have no common class
        expectation = "`weights` must be an .npz file of kernels and biases"
        raise ValueError(f"{expectation}. Received: weights={str(weights)!r}") from error


def assign_weights(variables, arrays, path):
    """Assigns arrays of a file to the variables of the same names, all of them, and shapes."""
    wanted = {name: tuple(variable.shape) for name, variable in variables.items()}
    floats = {name: array for name, array in arrays.items() if array.dtype.kind == "f"}
    found = {name: array.shape for name, array in floats.items() if np.isfinite(array).all()}
    differ = [name for name in {**wanted, **arrays} if wanted.get(name) != found.get(name, "none")]
    more = [f"{len(differ) - _NAMED} more"] if len(differ) > _NAMED else []
    check(
        not differ,
        "weights must be the kernels and biases of this network, and no others, finite floats of "
        "the same shapes",
        weights=str(path),
        differ=[*differ[:_NAMED], *more],
    )
    for name, variable in variables.items():
        variable.assign(arrays[name])
