"""The user's images, as a server accepts them, in batches."""

import io
import itertools
import os
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import PIL.Image

from tfdml.checks import check, check_type
from tfdml.images.image_headers import read_image
from tfdml.serving.bad_images import reasons

_KINDS = "paths, bytes of encoded images, or arrays of uint8"


class ImageError(ValueError):
    """An image cannot be read, by the client or the server.

    Args:
        image: Its path, or its position in the input.
        reason: Why it cannot be read.
    """

    def __init__(self, image, reason):
        self.image, self.reason = image, reason
        super().__init__(f"{image} cannot be read: {reason}")


class Images(NamedTuple):
    """One image, or a pair of them."""

    names: tuple  # of each, in error messages
    contents: tuple  # of each, bytes of a file

    @property
    def name(self):
        return " and ".join(self.names)

    def rejected(self, inputs, message):
        """The `ImageError` of the unreadable one, or of both, for an error of the server."""
        for name, each in zip(inputs, self.names, strict=True):
            if reason := reasons(message, name).get(0):
                return ImageError(each, f"the server says: {reason}")
        return ImageError(self.name, f"the server says: {message}")


def listed(images):
    """An iterable of the given images, and their number if known."""
    if isinstance(images, (str, os.PathLike, bytes)):
        return [images], 1
    if isinstance(images, np.ndarray):
        expected = "an array must be (n, height, width, channels), or one image"
        check(images.ndim in (2, 3, 4), expected, shape=images.shape)
        images = images if images.ndim == 4 else images[None]
    check_type(isinstance(images, Iterable), f"`images` must be {_KINDS}", images=images)
    return images, len(images) if hasattr(images, "__len__") else None


def read_images(given, names):
    """The `Images` of one or two, or the `ImageError` of the first that cannot be read."""
    try:
        return Images(*zip(*map(read, given, names), strict=True))
    except ImageError as error:
        return error


def read(given, name):
    """The name and the bytes of one image: a path, the bytes of a file, or an array, as PNG."""
    if isinstance(given, (str, os.PathLike)):
        try:
            return os.fspath(given), read_image(given)
        except OSError as error:
            raise ImageError(os.fspath(given), error.strerror or str(error)) from error
    if isinstance(given, bytes):
        return name, given
    check_type(isinstance(given, np.ndarray), f"{name} must be one of {_KINDS}", image=type(given))
    check_type(given.dtype == np.uint8, f"{name} must be of uint8", dtype=given.dtype.name)
    channels = given.shape[2:] or (1,)
    is_image = given.ndim in (2, 3) and given.size > 0 and channels in ((1,), (3,))
    expected = "(height, width), or (height, width, channels) with 1 or 3 channels"
    check(is_image, f"{name} must be {expected}", shape=given.shape)
    buffer = io.BytesIO()
    pixels = given[:, :, 0] if given.shape[2:] == (1,) else given
    PIL.Image.fromarray(pixels).save(buffer, "PNG")
    return name, buffer.getvalue()


def batches_of(images, batch_size):
    """Lists of `Images`, and of the `ImageError`s between them."""
    for _, alike in itertools.groupby(images, type):
        while batch := list(itertools.islice(alike, batch_size)):
            yield batch
