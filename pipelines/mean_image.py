"""Reads a mean image in NumPy's or Caffe's format."""

import os
import pathlib
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from tfdml.checks import Bare, check

SUFFIXES = (".npy", ".binaryproto")
_CAFFE_PROTO = """
name: "mean_image.proto" package: "mean_image" syntax: "proto2"
message_type {
  name: "BlobProto"
  field { name: "channels" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "height" number: 3 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "width" number: 4 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "data" number: 5 type: TYPE_FLOAT label: LABEL_REPEATED }
}
"""


def read_mean_image(path):
    """The mean image of a file: (height, width, channels) float32, red first.

    Args:
        path: A `.npy` file of (height, width, channels) floats, red first; or a `.binaryproto`
            file of Caffe, such as `imagenet_mean.binaryproto`, which has blue first.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read.
    """
    path = pathlib.Path(os.path.expanduser(path))
    kinds = " or ".join(SUFFIXES)
    check(path.suffix in SUFFIXES, f"`mean_image` must be a file {kinds}", mean_image=Bare(path))
    if not path.is_file():
        raise FileNotFoundError(f"`mean_image` must be an existing file. There is no {path}")
    try:
        with path.open("rb") as file:
            if path.suffix == ".npy":  # not by `np.load`, which also takes archives
                return np.lib.format.read_array(file, allow_pickle=False).astype(np.float32)
            return _caffe_image(file.read())
    except Exception as error:  # what NumPy and protobuf raise has no common class
        raise ValueError(f"{path} cannot be read ({error})") from error


def _caffe_image(content):
    """The image of a `BlobProto` of caffe.proto, as Caffe's `compute_image_mean` writes it."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_CAFFE_PROTO, descriptor_pb2.FileDescriptorProto()))
    kind = pool.FindMessageTypeByName("mean_image.BlobProto")
    blob: Any = message_factory.GetMessageClass(kind)()
    blob.ParseFromString(content)
    planes = np.array(blob.data, np.float32).reshape(blob.channels, blob.height, blob.width)
    return planes[::-1].transpose(1, 2, 0)
