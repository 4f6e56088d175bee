"""The networks of tfdml in PyTorch, with the weights that `tfdml_networks.py` wrote.

They take (batch, channels, height, width) floats in [0, 255].
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers.workers.torch_googlenet import GoogLeNet
from benchmarks.peers.workers.torch_mobilenet import mobilenet_v2

# Variables of a layer of Keras -> of PyTorch.
NAMES = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


class Embedder(nn.Module):
    """A network from images to embeddings.

    Args:
        name: One of `NETWORKS`.
        path: File of its weights.
        unit: Whether its rows have unit length.
    """

    def __init__(self, name, path, unit=True):
        super().__init__()
        layers, self.unit = layers_of(path), unit
        *_, embedding = layers.values()
        self.features = NETWORKS[name](layers)
        self.embedding = nn.Linear(*embedding["kernel"].shape)
        load(self, layers)

    def forward(self, images):
        features = self.features(images)
        with torch.autocast("cpu", enabled=False):  # in float32, as in tfdml
            rows = self.embedding(features.float())
        return functional.normalize(rows, dim=1) if self.unit else rows


def layers_of(path):
    """{layer: {variable: array}} of a file, in the order of the network."""
    layers = {}
    with np.load(path) as arrays:
        for name, array in arrays.items():
            layer, _, variable = name.partition("/")
            layers.setdefault(layer, {})[variable] = torch.from_numpy(array)
    return layers


def load(network, layers):
    """Assigns the weights of Keras, layer by layer."""
    own = [each for each in network.modules() if isinstance(each, LAYERS)]
    for layer, variables in zip(own, layers.values(), strict=True):
        weights = {NAMES[name]: to_torch(layer, array) for name, array in variables.items()}
        layer.load_state_dict(weights, strict=False)  # it counts batches too
        named = [*layer.named_parameters(), *layer.named_buffers()]
        missing = {name for name, _ in named} - {*weights, "num_batches_tracked"}
        if missing:
            raise ValueError(f"weights must have {sorted(missing)}. Received: {sorted(weights)}")


LAYERS = (nn.Conv2d, nn.BatchNorm2d, nn.Linear)


def to_torch(layer, array):
    """An array of Keras in the layout of PyTorch."""
    if isinstance(layer, nn.Conv2d) and array.ndim == 4:
        grouped = layer.groups > 1  # depthwise: (height, width, channels, 1)
        return array.permute(2, 3, 0, 1) if grouped else array.permute(3, 2, 0, 1)
    return array.T if array.ndim == 2 else array


class Scaled(nn.Module):
    """From [0, 255] to [-1, 1]."""

    def forward(self, images):
        return images / 127.5 - 1.0


class InRows(nn.Module):
    """Flattens maps with the channels last, as Keras does."""

    def forward(self, maps):
        return maps.permute(0, 2, 3, 1).flatten(1)


def small_cnn(layers):
    first, *_ = layers.values()
    channels, built = first["kernel"].shape[2], [Scaled()]
    for block in range(4):
        convolution = nn.Conv2d(64 if block else channels, 64, 3, padding=1, bias=False)
        built += [convolution, nn.BatchNorm2d(64, eps=1e-3, momentum=0.1)]
        built += [nn.MaxPool2d(2), nn.ReLU()] if block < 3 else [nn.ReLU()]
    return nn.Sequential(*built, InRows())


NETWORKS = {
    "small_cnn": small_cnn,
    "mobilenet_v2": lambda _: nn.Sequential(Scaled(), mobilenet_v2()),
    "googlenet": GoogLeNet,
}
