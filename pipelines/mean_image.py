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
  name: "BlobShape"
  field { name: "dim" number: 1 type: TYPE_INT64 label: LABEL_REPEATED options { packed: true } }
}
message_type {
  name: "BlobProto"
  field { name: "num" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "channels" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "height" number: 3 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "width" number: 4 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "data" number: 5 type: TYPE_FLOAT label: LABEL_REPEATED options { packed: true } }
  field { name: "shape" number: 7 type: TYPE_MESSAGE label: LABEL_OPTIONAL
          type_name: ".mean_image.BlobShape" }
}
"""


def read_mean_image(path):
    """The mean image of a file: (height, width, channels) float32, red first.

    Args:
        path: A `.npy` file of (height, width, channels) floats, red first; or a `.binaryproto`
            file of Caffe, such as `imagenet_mean.binaryproto`, which has blue first.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it does not hold such an image.
    """
    path = pathlib.Path(os.path.expanduser(path))
    kinds = " or ".join(SUFFIXES)
    check(path.suffix in SUFFIXES, f"`mean_image` must be a file {kinds}", mean_image=Bare(path))
    if not path.is_file():
        raise FileNotFoundError(f"`mean_image` must be an existing file. There is no {path}")
    try:
        with path.open("rb") as file:
            if path.suffix == ".npy":  # not by `np.load`, which also takes archives
                mean = np.lib.format.read_array(file, allow_pickle=False)
            else:
                mean = _caffe_image(file.read())
    except Exception as error:  # what NumPy and protobuf raise has no common class
        raise ValueError(f"{path} cannot be read ({error})") from error
    holds = mean.ndim == 3 and mean.size and mean.dtype.kind == "f" and np.isfinite(mean).all()
    expected = f"{path} must hold (height, width, channels) finite floats"
    check(holds, expected, shape=mean.shape, dtype=Bare(mean.dtype))
    return mean.astype(np.float32)


def _caffe_image(content):
    """The image of a `BlobProto` of Caffe's caffe.proto, of which it needs a few fields alone."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_CAFFE_PROTO, descriptor_pb2.FileDescriptorProto()))
    kind = pool.FindMessageTypeByName("mean_image.BlobProto")
    blob: Any = message_factory.GetMessageClass(kind)()
    blob.ParseFromString(content)
    shape = tuple(blob.shape.dim) or (blob.num, blob.channels, blob.height, blob.width)
    planes = np.array(blob.data, np.float32).reshape(shape[-3:])  # one image
    return planes[::-1].transpose(1, 2, 0)
