"""The augmentation of `pipelines.transforms` in PyTorch, for the same draws."""

import math

import torch
from torch.nn import functional


def augmented(images, pixels, options, draws):
    """Random crops, flips and warps of a batch.

    Args:
        images: (n, side, side, channels) uint8.
        pixels: Side of the crops.
        options: Those of `pipelines.Augmentation` that are not its defaults.
        draws: (n, DRAWS) floats in [0, 1), as `race_images.py` names them.

    Returns:
        (n, channels, pixels, pixels) floats in [0, 255].
    """
    places = torch.floor(draws[:, 2:4] * (images.shape[1] - pixels + 1)).long()
    rows, columns = (place[:, None] + torch.arange(pixels) for place in places.T)
    every = torch.arange(len(images))[:, None, None]
    images = images[every, rows[:, :, None], columns[:, None, :]]
    if options.get("flip"):
        mirrored = (draws[:, 4] < 0.5)[:, None, None, None]
        images = torch.where(mirrored, images.flip(2), images)
    images = images.permute(0, 3, 1, 2).float()
    warps = any(options.get(name) for name in ("rotation", "zoom", "shift"))
    return warped(images, options, 2.0 * draws[:, 5:] - 1.0) if warps else images


def warped(images, options, signed):
    """Images rotated, zoomed and shifted; pixels from outside repeat the border.

    Args:
        images: (n, channels, side, side) floats.
        options: As of `augmented`.
        signed: (n, 4) floats from -1 to 1: rotation, zoom, two shifts.
    """
    side = images.shape[-1]
    middle = (side - 1) / 2.0
    angle = math.radians(options.get("rotation", 0.0)) * signed[:, 0]
    scale = 1.0 / (1.0 + options.get("zoom", 0.0) * signed[:, 1])
    shifts = options.get("shift", 0.0) * side * signed[:, 2:]
    cosine, sine = scale * torch.cos(angle), scale * torch.sin(angle)
    y, x = torch.meshgrid(*[torch.arange(side) - middle] * 2, indexing="ij")
    cosine, sine = cosine[:, None, None], sine[:, None, None]
    from_x = cosine * x - sine * y + shifts[:, 0, None, None]
    from_y = sine * x + cosine * y + shifts[:, 1, None, None]
    grid = torch.stack([from_x, from_y], dim=3) / middle  # -1 and 1 are the outer pixels
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=True)
