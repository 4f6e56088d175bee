"""How an image of any size becomes one of the network's, where resizing alone is not enough."""

import dataclasses
import numbers
from typing import Any


@dataclasses.dataclass(frozen=True, eq=False)
class Preprocessing:
    """What is done to an image before a crop of it is taken, alike in training and in scoring.

    The image is brought to `warp_size`, in 8 bits as the papers stored it, and a crop of the size
    that the network takes is cut out: a random one in training, the middle in scoring and in the
    served model. The defaults change nothing: images are then resized to that size, without a crop.

    Args:
        warp_size: Side in pixels to which every image is brought before the crop, at least that of
            the crop; the crop's own if None.
        keep_aspect: Whether the shorter side becomes `warp_size` and the longer one follows; if
            not, both become `warp_size`.
        trim_white: Whether a white border is cut off first, in the image's box if that has one; the
            longer side then becomes `warp_size`, and white margins make it square.
        mean_image: (height, width, channels) floats to subtract at `warp_size`, before the crop.
            The means of its channels are added back, for a network that subtracts a mean pixel
            itself, so that pixels stay about [0, 255]; None for none.

    Raises:
        TypeError: If `warp_size` is no integer, a switch no bool or `mean_image` no floats.
        ValueError: If one is out of range, or two do not go together.

    Source:
        Warp and crop: Krizhevsky, Sutskever, Hinton. ImageNet classification with deep
        convolutional neural networks. NIPS 2012, section 4.1; 256 and 227 pixels by the released
        code of Song, Xiang, Jegelka, Savarese. Deep metric learning via lifted structured feature
        embedding. CVPR 2016; 256 and 224 by that of Yuan, Yang, Zhang. Hard-aware deeply cascaded
        embedding. ICCV 2017.
        White border: `load_cropped_images.m` of the released code of Song et al.
        Differs: resizes bilinearly, antialiased, where MATLAB and OpenCV have other filters; the
        mean image's channel means are added back here and those of ImageNet subtracted in the
        network, so that the two may differ by a constant below one level.
    """

    warp_size: int | None = None
    keep_aspect: bool = False
    trim_white: bool = False
    mean_image: Any = None

    def __post_init__(self):
        size = self.warp_size
        if size is not None and (isinstance(size, bool) or not isinstance(size, numbers.Integral)):
            raise TypeError(f"`warp_size` must be an integer. Received: warp_size={size!r}")
        if size is not None and size <= 0:
            raise ValueError(f"`warp_size` must be > 0. Received: warp_size={size}")
        for name in ("keep_aspect", "trim_white"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise TypeError(f"`{name}` must be true or false. Received: {name}={value!r}")
        if self.keep_aspect and self.trim_white:
            raise ValueError(
                "`trim_white` keeps the aspect by white margins: leave out `keep_aspect`. "
                "Received: keep_aspect=True, trim_white=True"
            )
        if self.mean_image is not None:
            self._check_mean_image()

    def _check_mean_image(self):
        import numpy as np

        mean = np.asarray(self.mean_image)
        if mean.dtype.kind != "f":
            raise TypeError(f"`mean_image` must be floats. Received: dtype={mean.dtype}")
        if mean.ndim != 3 or not np.isfinite(mean).all():
            raise ValueError(
                "`mean_image` must be (height, width, channels), all finite. "
                f"Received: shape={mean.shape}"
            )
        if self.keep_aspect:
            raise ValueError(
                "`mean_image` is of images of one size: leave out `keep_aspect`. "
                "Received: keep_aspect=True"
            )
        object.__setattr__(self, "mean_image", mean.astype(np.float32))

    @property
    def takes_crops(self):
        """Whether it does anything: images are not simply resized."""
        switches = self.keep_aspect or self.trim_white
        return bool(self.warp_size or switches or self.mean_image is not None)

    def size_of_warp(self, image_size):
        """(height, width) that images of `image_size` are cut out of."""
        return (self.warp_size,) * 2 if self.warp_size else tuple(image_size[:2])

    def size_of_views(self, image_size):
        """The size of the whole image that several crops are taken of.

        Args:
            image_size: (height, width, channels) of a crop.

        Returns:
            (height, width, channels): of `warp_size`, or else 8 / 7 of the sides of a crop.
        """
        from pipelines.views import enlarged

        if self.warp_size is None:
            return enlarged(image_size)
        return (*self.size_of_warp(image_size), image_size[2])

    def of_warped(self, warped):
        """What is left to do to images that are warped already, as those of a cache are.

        Args:
            warped: `Preprocessing` that they went through, but for crops and the mean image.

        Raises:
            ValueError: If they do not come out as if this had been done to the original ones.
        """
        if not (self.takes_crops or warped.trim_white):
            return self
        for name in ("warp_size", "keep_aspect", "trim_white"):
            wanted, had = getattr(self, name), getattr(warped, name)
            if wanted != had:
                raise ValueError(
                    f"`{name}` must be that of the cache, {had}: train with it, or make a cache "
                    f"with another. Received: {name}={wanted}"
                )
        return dataclasses.replace(self, trim_white=False)

    def check_sizes(self, image_size, augmentation=None):
        """Raises a ValueError unless it makes images of this size, changed in this way.

        Args:
            image_size: (height, width, channels) of a crop.
            augmentation: `Augmentation` of training; None in scoring.
        """
        warp = self.size_of_warp(image_size)
        if min(warp) < max(image_size[:2]) and self.warp_size:
            raise ValueError(
                "`warp_size` must be at least the side of a crop. "
                f"Received: warp_size={self.warp_size}, image_size={tuple(image_size)}"
            )
        if self.mean_image is None:
            return
        if self.mean_image.shape != (*warp, image_size[2]):
            raise ValueError(
                "`mean_image` must have the size of the images before the crop, "
                f"{(*warp, image_size[2])}. Received: mean_image.shape={self.mean_image.shape}"
            )
        if augmentation is not None and (augmentation.crops or augmentation.colour):
            raise ValueError(
                "`mean_image` is subtracted of whole images, whose pixels then leave [0, 255]: set "
                "`crop` of the augmentation to 1 and `colour` to 0. "
                f"Received: crop={augmentation.crop}, colour={augmentation.colour}"
            )
