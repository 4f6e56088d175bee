"""Converts published ImageNet weights of GoogLeNet to the .npz file that `googlenet` loads.

    python tools/convert_googlenet.py bvlc_googlenet.caffemodel googlenet.npz
    python tools/convert_googlenet.py googlenet-1378be20.pth googlenet.npz

The first is Caffe's, http://dl.caffe.berkeleyvision.org/bvlc_googlenet.caffemodel, with the early
exits; the second torchvision's, https://download.pytorch.org/models/googlenet-1378be20.pth, without
them; reading it requires PyTorch. Train with --backbone googlenet --weights googlenet.npz.
"""

import numpy as np
from conversion import from_convolution, from_fully_connected, main, read_caffemodel

EXIT_MAPS = (128, 4, 4)
EPSILON = 1e-3  # of torchvision's batch normalisation
TORCH_SUFFIXES = (".pth", ".pt")
# Layer of an inception module in Caffe -> its place in torchvision.
BRANCHES = {
    "1x1": "branch1",
    "3x3_reduce": "branch2.0",
    "3x3": "branch2.1",
    "5x5_reduce": "branch3.0",
    "5x5": "branch3.1",
    "pool_proj": "branch4.1",
}


def convert(path):
    """{name: array} of a published file, checked against the network."""
    import keras

    from tfdml.models.googlenet import googlenet, load_arrays

    if path.suffix in TORCH_SUFFIXES:
        arrays = from_torchvision(read_state_dict(path), path)
    else:
        arrays = from_caffe(read_caffemodel(path))
    images = keras.Input((224, 224, 3))
    weights = {name: array for name, array in arrays.items() if name != "variant"}
    load_arrays(keras.Model(images, googlenet(images, levels=3)), weights, path)
    return arrays


def from_caffe(layers):
    """{name: array} of Caffe's arrays, without the classifiers."""
    arrays = {}
    for layer, (kernel, bias) in layers.items():
        if layer.endswith("/classifier"):
            continue
        is_exit = layer in ("loss1/fc", "loss2/fc")
        name = layer.replace("/", "__")
        arrays[f"{name}/kernel"] = (
            from_fully_connected(layer, kernel, EXIT_MAPS)
            if is_exit
            else from_convolution(layer, kernel)
        )
        arrays[f"{name}/bias"] = bias.reshape(-1)
    return arrays


def from_torchvision(state, path):
    """{name: array} of torchvision's arrays, without the classifiers and exits.

    Batch normalisation and the order and scale of colours are folded into the kernels.
    """
    from tfdml.models.googlenet import MODULES

    places = {"conv1__7x7_s2": "conv1", "conv2__3x3_reduce": "conv2", "conv2__3x3": "conv3"}
    for module in MODULES:
        for layer, branch in BRANCHES.items():
            places[f"inception_{module}__{layer}"] = f"inception{module}.{branch}"
    arrays = {"variant": np.array("torchvision")}
    for name, place in places.items():
        kernel, bias = _without_normalization(state, place, path)
        if name == "conv1__7x7_s2":
            kernel = kernel[:, :, ::-1] / 127.5  # trained on RGB in [-1, 1]
        if name.endswith("__5x5"):
            kernel = np.pad(kernel, [(1, 1), (1, 1), (0, 0), (0, 0)])  # 3 × 3 in torchvision
        arrays[f"{name}/kernel"] = kernel.astype("float32")
        arrays[f"{name}/bias"] = bias.astype("float32")
    return arrays


def _without_normalization(state, place, path):
    """A convolution's kernel and bias with its batch normalisation folded in."""
    names = [f"{place}.conv.weight"]
    names += [f"{place}.bn.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
    missing = [name for name in names if name not in state]
    if missing:
        raise ValueError(f"{path} is not torchvision's GoogLeNet: it has no {missing[0]}")
    kernel, gamma, beta, mean, variance = (np.asarray(state[name], "float64") for name in names)
    scale = gamma / np.sqrt(variance + EPSILON)
    return from_convolution(place, kernel) * scale, beta - mean * scale


def read_state_dict(path):
    """{name: array} of a PyTorch file."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"{path} can only be read with PyTorch: pip install torch") from error
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        return {name: tensor.numpy() for name, tensor in state.items()}
    except Exception as error:  # pickle, zipfile and PyTorch raise many types
        raise ValueError(f"{path} is not a file of weights that PyTorch can read") from error


if __name__ == "__main__":
    main(convert, __doc__)
