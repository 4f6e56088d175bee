"""Options of images: preprocessing beyond plain resizing, and augmentation in training."""

import dataclasses
import math
import os
import pathlib
from typing import Any

import numpy as np

from tfdml.checks import (
    Bare,
    check,
    check_bool,
    check_integer,
    check_number,
    check_options,
    check_type,
)

_SHARE = 224 / 256  # side of a crop / side of the image that several are taken from


@dataclasses.dataclass(frozen=True, eq=False)
class Preprocessing:
    """Preprocessing of an image before its crop, the same in training and evaluation.

    The image is resized to `warp_size`, in 8 bits as the papers stored it, and cropped to the input
    size of the network: at random in training, at the centre in evaluation and in the served model.
    With the defaults images are resized to the input size, without a crop.

    Args:
        warp_size: Side in pixels of the resized image before the crop, at least that of the crop;
            that of the crop if None.
        keep_aspect: Whether to keep the aspect ratio, so that the shorter side is `warp_size`; if
            not, both sides are `warp_size`.
        trim_white: Whether to cut off a white border first, inside the image's box if it has one.
            The longer side is then `warp_size`, and white margins make the image square.
        mean_image: (height, width, channels) floats to subtract at `warp_size`, before the crop.
            The means of its channels are added back, for a network that subtracts a mean pixel
            itself, so that pixels stay about [0, 255]; None for none.

    Raises:
        TypeError: If `warp_size` is not an integer, a switch not a bool or `mean_image` not floats.
        ValueError: If one is out of range, or two exclude each other.

    Source:
        Krizhevsky, Sutskever, Hinton. NIPS 2012, section 4.1; the released code of Song, Xiang,
        Jegelka, Savarese. CVPR 2016 (256 and 227 pixels, white border), and that of Yuan, Yang,
        Zhang. ICCV 2017 (256 and 224 pixels).
        Differs: resizes bilinearly with antialiasing, where MATLAB and OpenCV use other filters;
        the mean image's channel means are added back here and those of ImageNet subtracted in the
        network, so pixels may differ by a constant below one grey level.
    """

    warp_size: int | None = None
    keep_aspect: bool = False
    trim_white: bool = False
    mean_image: Any = None

    def __post_init__(self):
        if self.warp_size is not None:
            check_integer(1, warp_size=self.warp_size)
        kept, trimmed = check_bool(keep_aspect=self.keep_aspect, trim_white=self.trim_white)
        needless = "`trim_white` keeps the aspect by white margins: leave out `keep_aspect`"
        check(not (kept and trimmed), needless, keep_aspect=kept, trim_white=trimmed)
        if self.mean_image is not None:
            mean = np.asarray(self.mean_image)
            floats = mean.dtype.kind == "f"
            check_type(floats, "`mean_image` must be floats", dtype=Bare(mean.dtype))
            expected = "`mean_image` must be (height, width, channels), all finite"
            check(mean.ndim == 3 and np.isfinite(mean).all(), expected, shape=mean.shape)
            one_size = "`mean_image` requires images of one size: leave out `keep_aspect`"
            check(not kept, one_size, keep_aspect=kept)
            vars(self)["mean_image"] = mean.astype(np.float32)

    @property
    def takes_crops(self):
        """Whether images are cropped or changed, not only resized."""
        switches = self.keep_aspect or self.trim_white
        return bool(self.warp_size or switches or self.mean_image is not None)

    def size_of_warp(self, image_size):
        """(height, width) before a crop of `image_size` is taken."""
        return (self.warp_size,) * 2 if self.warp_size else tuple(image_size[:2])

    def size_of_views(self, image_size):
        """The size of the image that several crops of `image_size` are taken from: 8 / 7 of them.

        With `warp_size` it is that.
        """
        whole = tuple(round(side / _SHARE) for side in image_size[:2])
        return *self.size_of_warp(whole), image_size[2]

    def after_warp(self, warped):
        """The preprocessing left to do for images that were warped before, as in a cache.

        Raises a ValueError if the result would differ from preprocessing the original images.
        """
        if not (self.takes_crops or warped.trim_white):
            return self
        for name in ("warp_size", "keep_aspect", "trim_white"):
            wanted, had = getattr(self, name), getattr(warped, name)
            advice = "train with it, or write another cache"
            expected = f"`{name}` must be that of the cache, {had}: {advice}"
            check(wanted == had, expected, **{name: wanted})
        return dataclasses.replace(self, trim_white=False)

    def check_sizes(self, image_size, augmentation):
        """Raises a ValueError if it cannot make images of this size with this augmentation."""
        image_size = tuple(image_size)
        received = {"warp_size": self.warp_size, "image_size": image_size}
        large = not self.warp_size or self.warp_size >= max(image_size[:2])
        check(large, "`warp_size` must be at least the side of a crop", **received)
        received = {"symmetries": augmentation.symmetries, "image_size": image_size}
        suits = augmentation.symmetries == 1 or image_size[0] == image_size[1]
        check(suits, "`symmetries` of the augmentation need square images", **received)
        if self.mean_image is None:
            return
        size, found = (*self.size_of_warp(image_size), image_size[2]), self.mean_image.shape
        expected = f"`mean_image` must have the size of the images before the crop, {size}"
        check(found == size, expected, **{"mean_image.shape": found})
        crop, colour = augmentation.crop, augmentation.colour
        whole = "`mean_image` is subtracted from whole images, so pixels leave [0, 255]: set"
        expected = f"{whole} `crop` of the augmentation to 1 and `colour` to 0"
        check(not (augmentation.crops or colour), expected, crop=crop, colour=colour)


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Random augmentation of training images, drawn anew for every step and image.

    The defaults change nothing.

    Args:
        crop: Smallest share of the area that a random crop keeps, above 0; 1 keeps all.
        aspect: Largest factor by which the aspect ratio of a crop differs from that of the image,
            either way, >= 1 and finite; 1 for none. A crop of the whole area keeps its shape.
        flip: Whether to mirror each image, left to right, with probability 1/2. Not for characters.
        symmetries: 4 turns all images of a batch by the same random multiple of 90 degrees, 8 also
            mirrors half of the batches: to a loss that compares the images of a batch, turned
            characters are further classes. A loss with proxies or a memory mixes them with the
            upright ones. For square images; 1 for none.
        rotation: Largest rotation either way, in degrees, 0 to 180; 0 for none.
        zoom: Largest relative change of scale either way, 0 to below 1; 0 for none.
        shift: Largest shift along each axis, as a share of the side, 0 to below 1; 0 for none.
        colour: Largest relative change of brightness and of contrast either way, 0 to 0.5; 0 for
            none. Saturation changes by up to twice as much.

    Raises:
        TypeError: If a value other than `flip` is not a number.
        ValueError: If a value is out of its range.
    """

    crop: float = 1.0
    aspect: float = 1.0
    flip: bool = False
    symmetries: int = 1
    rotation: float = 0.0
    zoom: float = 0.0
    shift: float = 0.0
    colour: float = 0.0

    def __post_init__(self):
        check_number(**{name: value for name, value in vars(self).items() if name != "flip"})
        for name, holds, range_ in (
            ("crop", 0 < self.crop <= 1, "> 0 and <= 1"),
            ("aspect", 1 <= self.aspect < math.inf, ">= 1 and finite"),
            ("flip", isinstance(self.flip, bool), "true or false"),
            ("symmetries", self.symmetries in (1, 4, 8), "1, 4 or 8"),
            ("rotation", 0 <= self.rotation <= 180, ">= 0 and <= 180 degrees"),
            ("zoom", 0 <= self.zoom < 1, ">= 0 and < 1"),
            ("shift", 0 <= self.shift < 1, ">= 0 and < 1"),
            ("colour", 0 <= self.colour <= 0.5, ">= 0 and <= 0.5"),
        ):
            check(holds, f"`{name}` must be {range_}", **{name: getattr(self, name)})

    @property
    def crops(self):
        return self.crop < 1

    @property
    def warps(self):
        return bool(self.rotation or self.zoom or self.shift)

    def changed(self, **values):
        """A copy with some fields changed; a misspelt field raises a ValueError."""
        check_options("augmentation", values, [field.name for field in dataclasses.fields(self)])
        return dataclasses.replace(self, **values)


def read_mean_image(path):
    """The mean image of a file: (height, width, channels) float32, red first.

    Args:
        path: A `.npy` file of (height, width, channels) floats, red first.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read.
    """
    path = pathlib.Path(os.path.expanduser(path))
    expected = "`mean_image` must be a .npy file; tools/convert_mean_image.py makes it of Caffe's"
    check(path.suffix == ".npy", expected, mean_image=Bare(path))
    if not path.is_file():
        raise FileNotFoundError(f"`mean_image` must be an existing file. There is no {path}")
    try:
        with path.open("rb") as file:  # not by `np.load`, which also takes archives
            return np.lib.format.read_array(file, allow_pickle=False).astype(np.float32)
    except Exception as error:  # what NumPy raises has no common class
        raise ValueError(f"{path} cannot be read ({error})") from error
