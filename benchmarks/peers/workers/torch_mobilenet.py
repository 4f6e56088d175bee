"""MobileNetV2 of torchvision, with the paddings and the batch normalisation of Keras."""

from torch import nn
from torch.nn import functional

from benchmarks.peers.workers.torchvision_import import torchvision


class SamePadding(nn.Module):
    """Pads for a 3 × 3 convolution of stride 2 as Keras does: an even side only at its end."""

    def forward(self, maps):
        height, width = maps.shape[2:]
        return functional.pad(maps, (width % 2, 1, height % 2, 1))


def mobilenet_v2():
    """From (batch, 3, height, width) floats in [-1, 1] to (batch, 1280) features."""
    features = torchvision.models.mobilenet_v2(weights=None).features
    for module in [*features.modules()]:
        for name, layer in [*module.named_children()]:
            if isinstance(layer, nn.BatchNorm2d):
                layer.eps, layer.momentum = 1e-3, 0.1
            if isinstance(layer, nn.Conv2d) and layer.stride == (2, 2):
                layer.padding = (0, 0)
                setattr(module, name, nn.Sequential(SamePadding(), layer))
    return nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten())
