"""Converts a mean image of Caffe to the .npy file that `train.py --mean_image` takes, red first.

    python tools/convert_mean_image.py imagenet_mean.binaryproto imagenet_mean.npy

The source is in http://dl.caffe.berkeleyvision.org/caffe_ilsvrc12.tar.gz.
"""

import pathlib
import sys

import numpy as np
from conversion import array_of, net_parameter
from google.protobuf.message import DecodeError


def convert(path):
    """(height, width, channels) float32 of the file that Caffe's `compute_image_mean` writes."""
    blob = net_parameter().layer.add().blobs.add()
    try:
        blob.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{path} is not a complete .binaryproto") from error
    return array_of(blob, "mean", path)[0, ::-1].transpose(1, 2, 0)


if __name__ == "__main__":
    source, out = map(pathlib.Path, sys.argv[1:])
    np.save(out, convert(source))
