"""Caffe's layers and networks, and torchvision's GoogLeNet, once more in NumPy.

Maps are (batch, channels, height, width) and kernels (out, in, height, width), as in the originals.
"""

import numpy as np

MODULES = ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b")


def convolution(x, kernel, bias, stride=1, pad=0, groups=1):
    if groups > 1:
        parts = (np.split(array, groups, axis) for array, axis in ((x, 1), (kernel, 0), (bias, 0)))
        maps = [convolution(*part, stride, pad) for part in zip(*parts, strict=True)]
        return np.concatenate(maps, axis=1)
    x = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[2:], axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride]
    maps = np.tensordot(windows, kernel, [(1, 4, 5), (1, 2, 3)])
    return (maps + bias).transpose(0, 3, 1, 2)


def max_pool(x, size, stride, pad=0):
    """Caffe's PoolingLayer: the number of windows is rounded up, windows end at the border."""
    sides = x.shape[2:]
    counts = [int(np.ceil((side + 2 * pad - size) / stride)) + 1 for side in sides]
    if pad:
        counts = [
            count - ((count - 1) * stride >= side + pad)
            for count, side in zip(counts, sides, strict=True)
        ]
    pooled = np.empty((*x.shape[:2], *counts), x.dtype)
    for i in range(counts[0]):
        for j in range(counts[1]):
            top, left = i * stride - pad, j * stride - pad
            window = x[:, :, max(top, 0) : top + size, max(left, 0) : left + size]
            pooled[:, :, i, j] = window.max(axis=(2, 3))
    return pooled


def normalization(x, size=5, alpha=1e-4, beta=0.75):
    """Caffe's LRNLayer across channels."""
    scale = np.ones_like(x)
    for channel in range(x.shape[1]):
        beside = x[:, max(channel - size // 2, 0) : channel + size // 2 + 1]
        scale[:, channel] += alpha / size * np.square(beside).sum(axis=1)
    return x / scale**beta


def relu(x):
    return np.maximum(x, 0)


def colours(images, mean=(104, 117, 123)):
    """(batch, height, width, 3) of red, green and blue -> (batch, 3, height, width), blue first."""
    return (images[..., ::-1] - np.array(mean)).transpose(0, 3, 1, 2).astype("float32")


def inception(x, layers, name):
    def layer(maps, part, pad=0):
        return relu(convolution(maps, *layers[f"{name}/{part}"], pad=pad))

    branches = [
        layer(x, "1x1"),
        layer(layer(x, "3x3_reduce"), "3x3", pad=1),
        layer(layer(x, "5x5_reduce"), "5x5", pad=2),
        layer(max_pool(x, 3, 1, pad=1), "pool_proj"),
    ]
    return np.concatenate(branches, axis=1)


def googlenet(images, layers):
    """BVLC's: {"loss1": ..., "loss2": ..., "pool5": ...}, exits for images of 224 px if known."""
    x = relu(convolution(colours(images), *layers["conv1/7x7_s2"], stride=2, pad=3))
    x = normalization(max_pool(x, 3, 2))
    x = relu(convolution(x, *layers["conv2/3x3_reduce"]))
    x = relu(convolution(x, *layers["conv2/3x3"], pad=1))
    x = max_pool(normalization(x), 3, 2)
    features = {}
    for module in MODULES:
        if module in ("4a", "5a"):
            x = max_pool(x, 3, 2)
        x = inception(x, layers, f"inception_{module}")
        name = {"4a": "loss1", "4d": "loss2"}.get(module)
        if f"{name}/conv" in layers:
            windows = np.lib.stride_tricks.sliding_window_view(x, (5, 5), axis=(2, 3))
            averages = windows[:, :, ::3, ::3].mean(axis=(4, 5))
            maps = relu(convolution(averages, *layers[f"{name}/conv"]))
            kernel, bias = layers[f"{name}/fc"]
            features[name] = relu(maps.reshape(len(maps), -1) @ kernel.T + bias)
    return {**features, "pool5": x.mean(axis=(2, 3))}


def caffenet(images, layers):
    """BVLC's reference CaffeNet, without dropout: fc7."""
    x = relu(convolution(colours(images), *layers["conv1"], stride=4))
    x = normalization(max_pool(x, 3, 2))
    x = relu(convolution(x, *layers["conv2"], pad=2, groups=2))
    x = normalization(max_pool(x, 3, 2))
    x = relu(convolution(x, *layers["conv3"], pad=1))
    x = relu(convolution(x, *layers["conv4"], pad=1, groups=2))
    x = relu(convolution(x, *layers["conv5"], pad=1, groups=2))
    x = max_pool(x, 3, 2).reshape(len(x), -1)
    for name in ("fc6", "fc7"):
        kernel, bias = layers[name]
        x = relu(x @ kernel.T + bias)
    return x


def torchvision_googlenet(images, state):
    """torchvision's, of images from 0 to 255, in evaluation: what its `avgpool` gives."""

    def basic(x, name, stride=1, pad=0):
        x = convolution(x, state[f"{name}.conv.weight"], np.float32(0), stride, pad)
        parts = [state[f"{name}.bn.{part}"] for part in ("running_mean", "running_var")]
        parts += [state[f"{name}.bn.{part}"] for part in ("weight", "bias")]
        mean, variance, gamma, beta = (part[:, None, None] for part in parts)
        return relu((x - mean) / np.sqrt(variance + 0.001) * gamma + beta)

    x = ((images / 255 - 0.5) / 0.5).transpose(0, 3, 1, 2).astype("float32")
    x = max_pool(basic(x, "conv1", stride=2, pad=3), 3, 2)
    x = max_pool(basic(basic(x, "conv2"), "conv3", pad=1), 3, 2)
    for module in MODULES:
        if module in ("4a", "5a"):
            x = max_pool(x, 3 if module == "4a" else 2, 2)
        name = f"inception{module}"
        branches = [
            basic(x, f"{name}.branch1"),
            basic(basic(x, f"{name}.branch2.0"), f"{name}.branch2.1", pad=1),
            basic(basic(x, f"{name}.branch3.0"), f"{name}.branch3.1", pad=1),
            basic(max_pool(x, 3, 1, pad=1), f"{name}.branch4.1"),
        ]
        x = np.concatenate(branches, axis=1)
    return x.mean(axis=(2, 3))
