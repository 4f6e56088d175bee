"""Reads a mean image in NumPy's or Caffe's format."""

import functools
import pathlib

import numpy as np

SUFFIXES = (".npy", ".binaryproto")


def read_mean_image(path):
    """The mean image of a file.

    Args:
        path: A `.npy` file of (height, width, channels) floats, red first; or a `.binaryproto`
            file of Caffe, such as `imagenet_mean.binaryproto`, which has blue first.

    Returns:
        (height, width, channels) float32, red first.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it does not hold such an image.
    """
    path = pathlib.Path(path).expanduser()
    if path.suffix not in SUFFIXES:
        raise ValueError(
            f"`mean_image` must be a file {' or '.join(SUFFIXES)}. Received: mean_image={path}"
        )
    if not path.is_file():
        raise FileNotFoundError(f"`mean_image` must be an existing file. There is no {path}")
    try:
        mean = _of_numpy(path) if path.suffix == ".npy" else _of_caffe(path.read_bytes())
    except Exception as error:  # what NumPy and protobuf raise has no common class
        raise ValueError(f"{path} cannot be read ({error})") from error
    finite = mean.dtype.kind == "f" and np.isfinite(mean).all()
    if mean.ndim != 3 or not mean.size or not finite:
        raise ValueError(
            f"{path} must hold (height, width, channels) finite floats. "
            f"Received: shape={mean.shape}, dtype={mean.dtype}"
        )
    return mean.astype(np.float32)


def _of_numpy(path):
    with path.open("rb") as file:  # `np.load` also takes archives
        return np.lib.format.read_array(file, allow_pickle=False)


def _of_caffe(content):
    blob = _blob_class()()
    blob.ParseFromString(content)
    shape = tuple(blob.shape.dim) or (blob.num, blob.channels, blob.height, blob.width)
    planes = np.array(blob.data, np.float32).reshape(shape[-3:])  # one image
    return planes[::-1].transpose(1, 2, 0)


@functools.cache
def _blob_class():
    """`BlobProto` of Caffe's caffe.proto, with only the fields that an image needs."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="mean_image.proto", package="mean_image", syntax="proto2"
    )
    fields = {
        "BlobShape": [("dim", 1, kinds.TYPE_INT64, True)],
        "BlobProto": [
            ("num", 1, kinds.TYPE_INT32, False),
            ("channels", 2, kinds.TYPE_INT32, False),
            ("height", 3, kinds.TYPE_INT32, False),
            ("width", 4, kinds.TYPE_INT32, False),
            ("data", 5, kinds.TYPE_FLOAT, True),
            ("shape", 7, kinds.TYPE_MESSAGE, False),
        ],
    }
    for name, of_message in fields.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in of_message:
            label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, type=kind, label=label)
            if kind == kinds.TYPE_MESSAGE:
                added.type_name = ".mean_image.BlobShape"
            elif repeated:
                added.options.packed = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("mean_image.BlobProto"))
