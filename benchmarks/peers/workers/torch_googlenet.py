"""GoogLeNet of BVLC, which torchvision does not have: theirs has batch normalisation."""

import torch
from torch import nn
from torch.nn import functional

MEAN = (123.0, 117.0, 104.0)  # of red, green and blue


class GoogLeNet(nn.Module):
    """From (batch, 3, height, width) floats in [0, 255] to (batch, 1024) features.

    Args:
        layers: {Caffe's name of a layer: {"kernel": (height, width, inputs, filters)}}.
    """

    def __init__(self, layers):
        super().__init__()
        names = [name for name in layers if name != "embedding"]
        self.convolutions = nn.ModuleDict(
            {name: convolution(*layers[name]["kernel"].shape[1:]) for name in names}
        )
        self.inceptions = dict.fromkeys(n.partition("__")[0] for n in names if "inception" in n)
        self.normalize = nn.LocalResponseNorm(5)

    def forward(self, images):
        x = (images - images.new_tensor(MEAN)[:, None, None]).flip(1)
        x = self.normalize(pool(self.conv("conv1__7x7_s2", x)))
        x = self.conv("conv2__3x3", self.conv("conv2__3x3_reduce", x))
        x = pool(self.normalize(x))
        for name in self.inceptions:
            x = pool(x) if name in ("inception_4a", "inception_5a") else x
            x = self.inception(name, x)
        return x.mean((2, 3))

    def conv(self, name, maps):
        return functional.relu(self.convolutions[name](maps))

    def inception(self, name, maps):
        branches = [self.conv(f"{name}__1x1", maps)]
        for size in ("3x3", "5x5"):
            reduced = self.conv(f"{name}__{size}_reduce", maps)
            branches.append(self.conv(f"{name}__{size}", reduced))
        pooled = functional.max_pool2d(maps, 3, 1, 1)
        return torch.cat([*branches, self.conv(f"{name}__pool_proj", pooled)], dim=1)


def convolution(size, inputs, filters):
    return nn.Conv2d(inputs, filters, size, stride=2 if size == 7 else 1, padding=size // 2)


def pool(maps):
    return functional.max_pool2d(maps, 3, 2, ceil_mode=True)
