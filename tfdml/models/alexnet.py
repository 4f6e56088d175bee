import keras
from keras import layers

from tfdml.checks import check
from tfdml.layers import Dropout, LocalResponseNormalization
from tfdml.models import caffe
from tfdml.models.caffe import check_side, conv, max_pool, read_weights

UNITS = 4096  # of fc6 and of fc7


def alexnet(inputs, weights=None, levels=1):
    """AlexNet, as in Caffe's reference CaffeNet, up to the 4096 features of `fc7`.

    Its weights are an .npz file of `tools/convert_alexnet.py`, for images of 227 × 227 pixels.

    Source:
        Krizhevsky, Sutskever, Hinton. ImageNet classification with deep convolutional neural
        networks. NIPS 2012.
        Differs: pools before normalisation, as CaffeNet does; He initialisation of random weights.
    """
    check_side(inputs, 39, "AlexNet")
    size = tuple(inputs.shape[1:3])
    fits = weights is None or size == (227, 227)
    check(fits, "pretrained weights of AlexNet need images of 227 × 227 pixels", size=size)
    arrays = read_weights(weights)
    features = _features(inputs)
    if weights is not None:
        load_arrays(keras.Model(inputs, features), arrays, weights)
    return [features]


def load_arrays(network, arrays, path):
    """Assigns the arrays of a file, except `fc8`, the classifier, to the layers of an AlexNet."""
    variables = {}
    for layer in network.layers:
        if hasattr(layer, "kernel"):
            variables |= {f"{layer.name}/kernel": layer.kernel, f"{layer.name}/bias": layer.bias}
    used = {name: array for name, array in arrays.items() if not name.startswith("fc8/")}
    caffe.assign_weights(variables, used, path)


def _features(inputs):
    x = conv(caffe.centred_images(inputs), 96, 11, "conv1", strides=4, padding="valid")
    x = LocalResponseNormalization(name="norm1")(max_pool(x, 3, "pool1"))
    x = conv(x, 256, 5, "conv2", groups=2)
    x = LocalResponseNormalization(name="norm2")(max_pool(x, 3, "pool2"))
    x = conv(x, 384, 3, "conv3")
    x = conv(x, 384, 3, "conv4", groups=2)
    x = max_pool(conv(x, 256, 3, "conv5", groups=2), 3, "pool5")
    x = layers.Flatten(name="flatten")(x)
    for number in (6, 7):
        units = layers.Dense(UNITS, "relu", kernel_initializer="he_uniform", name=f"fc{number}")
        x = Dropout(0.5, name=f"drop{number}")(units(x))
    return x
