import re

import keras
from keras import layers

from tfdml.checks import check_one_of
from tfdml.layers import LocalResponseNormalization
from tfdml.models import caffe
from tfdml.models.caffe import check_side, conv, exit_features, max_pool, read_weights

# Module -> filters of 1×1, (reduction and) 3×3, (reduction and) 5×5, and after pooling.
MODULES = {
    "3a": (64, (96, 128), (16, 32), 32),
    "3b": (128, (128, 192), (32, 96), 64),
    "4a": (192, (96, 208), (16, 48), 64),
    "4b": (160, (112, 224), (24, 64), 64),
    "4c": (128, (128, 256), (24, 64), 64),
    "4d": (112, (144, 288), (32, 64), 64),
    "4e": (256, (160, 320), (32, 128), 128),
    "5a": (256, (160, 320), (32, 128), 128),
    "5b": (384, (192, 384), (48, 128), 128),
}
_EXITS = {"4a": "loss1", "4d": "loss2"}  # preceding module -> name of the exit
_EXIT_FC = 4 * 4 * 128  # inputs of its fully connected units, from images of 224 px


def googlenet(inputs, weights=None, levels=1):
    """GoogLeNet (Inception v1) up to its average-pooled 1024 features, and its two early exits.

    Layers have their Caffe names, with `__` for `/`; those of an exit are `loss1_conv`, `loss1_fc`.
    Its weights are an .npz file of `tools/convert_googlenet.py`. Those of exits are loaded if it
    has them, except fully connected ones that do not fit the size of the images. A `variant` of
    "torchvision" builds torchvision's network: without response normalisation, with another mean
    colour and a smaller last pooling.

    Source:
        Szegedy et al. Going deeper with convolutions. CVPR 2015; the BVLC model of Caffe.
        Differs: He initialisation with zero biases instead of Xavier with 0.2; no dropout, which is
        left to the caller.
    """
    check_side(inputs, 31, "GoogLeNet")
    arrays = read_weights(weights)
    variant = str(arrays.pop("variant", "bvlc"))
    check_one_of(("bvlc", "torchvision"), variant=variant)
    features = _features(inputs, variant == "bvlc", levels)
    if weights is not None:
        load_arrays(keras.Model(inputs, features), arrays, weights)
    return features


def load_arrays(network, arrays, path):
    """Assigns the arrays of a file, except `variant`, to the layers of a GoogLeNet."""
    exits_held = {name.partition("__")[0] for name in arrays if re.match("loss[12]__", name)}
    variables = {}
    for layer in network.layers:
        if hasattr(layer, "kernel"):
            exit_name, _, part = layer.name.partition("_")
            fits = part != "fc" or layer.kernel.shape[0] == _EXIT_FC
            if exit_name not in _EXITS.values() or (exit_name in exits_held and fits):
                name = re.sub("^(loss[12])_", r"\1__", layer.name)
                variables |= {f"{name}/kernel": layer.kernel, f"{name}/bias": layer.bias}
    left_out = re.compile("loss([12]__(conv|fc)|[123]__classifier)/(kernel|bias)").fullmatch
    used = {name: of for name, of in arrays.items() if name in variables or not left_out(name)}
    caffe.assign_weights(variables, used, path)


def _features(inputs, bvlc, levels):
    x = caffe.centred_images(inputs, caffe.IMAGENET_MEAN if bvlc else (127.5, 127.5, 127.5))
    x = layers.ZeroPadding2D(3, name="conv1__pad")(x)
    x = conv(x, 64, 7, "conv1__7x7_s2", strides=2, padding="valid")
    x = max_pool(x, 3, "pool1__3x3_s2")
    if bvlc:
        x = LocalResponseNormalization(name="pool1__norm1")(x)
    x = conv(x, 64, 1, "conv2__3x3_reduce")
    x = conv(x, 192, 3, "conv2__3x3")
    if bvlc:
        x = LocalResponseNormalization(name="conv2__norm2")(x)
    x = max_pool(x, 3, "pool2__3x3_s2")
    exits = dict(list(_EXITS.items())[3 - levels :])
    features = []
    for module, filters in MODULES.items():
        if module == "4a":
            x = max_pool(x, 3, "pool3__3x3_s2")
        if module == "5a":
            x = max_pool(x, 3, "pool4__3x3_s2") if bvlc else max_pool(x, 2, "pool4__2x2_s2")
        x = _inception(x, f"inception_{module}", *filters)
        if module in exits:
            features.append(exit_features(x, exits[module]))
    return [*features, layers.GlobalAveragePooling2D(name="pool5")(x)]


def _inception(x, name, ones, threes, fives, pooled):
    pool = layers.MaxPooling2D(3, 1, "same", name=f"{name}__pool")(x)
    branches = [
        conv(x, ones, 1, f"{name}__1x1"),
        conv(conv(x, threes[0], 1, f"{name}__3x3_reduce"), threes[1], 3, f"{name}__3x3"),
        conv(conv(x, fives[0], 1, f"{name}__5x5_reduce"), fives[1], 5, f"{name}__5x5"),
        conv(pool, pooled, 1, f"{name}__pool_proj"),
    ]
    return layers.Concatenate(name=f"{name}__output")(branches)
