"""Reads a mean image."""

import os
import pathlib

import numpy as np

from tfdml.checks import Bare, check


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
