"""Backbones of `keras.applications` with built-in preprocessing and two early exits each.

All take `inputs`, (batch, height, width, 3) floats in [0, 255]; `weights`, None, `"imagenet"`
(Keras downloads them) or the path of Keras' ImageNet weights file without top; and `levels`, 1 for
the final features only, 2 to add an exit at about 2/3 of the depth, 3 to add one at 1/3 as well.
They return a list of (batch, features) tensors, from the shallowest level to the deepest. The
moving averages of their batch normalisation have momentum 0.9, as in `small_cnn`: with Keras' 0.99
and 0.999 the initial values outlast a short training.
"""

import math
import warnings

from keras import applications, layers

from tfdml.layers import Dropout, FusedBatchNormalization
from tfdml.models.caffe import centred_images, exit_features

_IMAGENET_MEANS, _IMAGENET_DEVIATIONS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CAFFE_MEANS = (123.68, 116.779, 103.939)


def convnext_tiny(inputs, weights=None, levels=1):
    """ConvNeXt-T: 768 features (Liu et al. A ConvNet for the 2020s. CVPR 2022)."""
    after = ("convnext_tiny_downsampling_block_1", "convnext_tiny_stage_2_block_6_depthwise_conv")
    return _features(applications.ConvNeXtTiny, inputs, weights, levels, after, "input")


def efficientnet_b0(inputs, weights=None, levels=1):
    """EfficientNet-B0: 1,280 features (Tan, Le. EfficientNet. ICML 2019)."""
    images = inputs
    if weights not in (None, "imagenet"):
        # Keras divides by the root of the deviations only if it loaded the weights itself.
        roots = [math.sqrt(deviation) for deviation in _IMAGENET_DEVIATIONS]
        offsets = [255 * m * (1 - 1 / r) for m, r in zip(_IMAGENET_MEANS, roots, strict=True)]
        images = layers.Rescaling([1 / root for root in roots], offset=offsets)(inputs)
    exits = ("block4b_add", "block5c_add")
    return _features(applications.EfficientNetB0, images, weights, levels, exits)


def inception_v3(inputs, weights=None, levels=1):
    """Inception v3: 2,048 features (Szegedy et al. Rethinking Inception. CVPR 2016)."""
    images, exits = _in_unit_range(inputs), ("mixed3", "mixed6")
    return _features(applications.InceptionV3, images, weights, levels, exits)


def mobilenet_v2(inputs, weights=None, levels=1):
    """MobileNetV2, width 1.0: 1,280 features (Sandler et al. MobileNetV2. CVPR 2018)."""
    images, exits = _in_unit_range(inputs), ("block_6_project_BN", "block_11_add")
    return _features(applications.MobileNetV2, images, weights, levels, exits)


def resnet50(inputs, weights=None, levels=1):
    """ResNet-50: 2,048 features (He et al. Deep residual learning. CVPR 2016)."""
    images = centred_images(inputs, _CAFFE_MEANS)
    exits = ("conv3_block4_out", "conv4_block4_out")
    return _features(applications.ResNet50, images, weights, levels, exits)


def _in_unit_range(images):
    return layers.Rescaling(1 / 127.5, offset=-1.0)(images)


def _features(application, images, weights, levels, exits, side="output"):
    try:
        with warnings.catch_warnings():
            # Convolutions take images of any size: the weights for 224 pixels are the right ones.
            warnings.filterwarnings("ignore", "`input_shape` is undefined or non-square")
            network = application(
                input_shape=images.shape[1:],
                input_tensor=images,
                include_top=False,
                weights=weights if weights == "imagenet" else None,
                pooling="avg",
            )
    except Exception as error:
        if "URL fetch failure" not in str(error):  # it has no exception class of its own
            raise
        sentence = f"{error}. Download that file elsewhere and give its path as `weights`"
        raise OSError(sentence) from error
    if weights not in (None, "imagenet"):
        _load_weights(network, application, weights)
    _adapt(network)  # after the weights, whose file names the classes of layers
    maps = [getattr(network.get_layer(layer), side) for layer in exits[3 - levels :]]
    early = [exit_features(x, f"exit{number}") for number, x in enumerate(maps, start=1)]
    return [*early, network.output]


def _adapt(network):
    """Sets what suits training: `keras.applications` take no layers of others."""
    for layer in network.layers:
        if type(layer) is layers.BatchNormalization:
            layer.__class__ = FusedBatchNormalization
            layer.momentum = 0.9
        if type(layer) is layers.Dropout:
            layer.__class__ = Dropout
        if isinstance(layer, layers.DepthwiseConv2D) and max(layer.strides) > 1:
            # On CPUs its gradient takes 20 times as long in bfloat16.
            layer.dtype_policy = "float32"


def _load_weights(network, application, path):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # Keras warns of missing layers
            network.load_weights(path)
    except Exception as error:  # errors of h5py, zipfile and Keras have no common class
        what = f"a Keras weights file of {application.__name__} without top, named *.weights.h5"
        raise ValueError(f"`weights` must be {what}. Received: weights={str(path)!r}") from error
