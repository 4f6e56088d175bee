"""Shared code of the converters of published weights: Caffe's files, and a command line."""

import argparse
import os
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tfdml.checks import check  # noqa: E402
from tfdml.command_line import one_sentence  # noqa: E402
from tfdml.files import replacing  # noqa: E402
from tfdml.quiet import keep_printing  # noqa: E402


def main(convert, description, arguments=None):
    """The command line `SOURCE OUT.npz`: converts a file, and writes the result atomically.

    Args:
        convert: From the path of the source to {name: array}; raises a ValueError or OSError with
            a message for the user.
        description: Of the script, with examples.
        arguments: Of the command line; `sys.argv` if None.
    """
    keep_printing()
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", metavar="SOURCE", type=pathlib.Path, help="the published file")
    parser.add_argument("out", metavar="OUT.npz", type=pathlib.Path, help="must not exist")
    arguments = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with one_sentence(parser.prog, ValueError, OSError, ImportError):
        check_paths(arguments.source, arguments.out)
        arrays = convert(arguments.source)
        write_npz(arguments.out, arrays)
    print(f"{arguments.out}: {len(arrays)} arrays")


def check_paths(source, out):
    """Raises an OSError or ValueError if the source cannot be read or the output written."""
    if not source.is_file():
        raise FileNotFoundError(f"there is no file {source}")
    if out.suffix != ".npz":
        raise ValueError(f"the name of the file to write must end in .npz. Received: {out}")
    if out.exists():
        raise FileExistsError(f"{out} exists: choose another name or delete it")
    if not out.absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {out.absolute().parent}")


def write_npz(path, arrays):
    """Writes a file atomically."""
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, **arrays)


def read_caffemodel(path):
    """{layer: (kernel, bias)} of a .caffemodel, for the layers with weights.

    Kernels are (out, in, height, width), or (out, in) for fully connected layers, stored as
    (1, 1, out, in) in old files; biases likewise.

    Raises:
        ValueError: If the file is not a .caffemodel.
    """
    from google.protobuf.message import DecodeError

    network = net_parameter()
    try:
        network.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{path} is not a complete .caffemodel") from error
    layers = {}
    for layer in (*network.layer, *network.layers):
        if not layer.blobs:
            continue
        arrays = [array_of(blob, layer.name, path) for blob in layer.blobs]
        if len(arrays) != 2:
            raise ValueError(f"{path}: layer {layer.name} must have only a kernel and a bias")
        layers[layer.name] = arrays
    if not layers:
        raise ValueError(f"{path} is not a .caffemodel: it has no layer with weights")
    return layers


def array_of(blob, layer, path):
    shape = tuple(blob.shape.dim) or (blob.num, blob.channels, blob.height, blob.width)
    if 4 * np.prod(shape, dtype=object) != len(blob.data):
        raise ValueError(
            f"{path}: layer {layer} has {len(blob.data)} bytes of weights for shape {shape}"
        )
    return np.frombuffer(blob.data, "<f4").reshape(shape)


def net_parameter():
    """An empty message with the parts of Caffe's caffe.proto that hold weights."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    # Packed floats are read as bytes, which avoids a Python float for each.
    messages = {
        "BlobShape": [("dim", 1, "int64", "packed")],
        "BlobProto": [
            ("num", 1, "int32", ""),
            ("channels", 2, "int32", ""),
            ("height", 3, "int32", ""),
            ("width", 4, "int32", ""),
            ("data", 5, "bytes", ""),
            ("shape", 7, "BlobShape", ""),
        ],
        "LayerParameter": [("name", 1, "string", ""), ("blobs", 7, "BlobProto", "repeated")],
        "V1LayerParameter": [("name", 4, "string", ""), ("blobs", 6, "BlobProto", "repeated")],
        "NetParameter": [
            ("layer", 100, "LayerParameter", "repeated"),
            ("layers", 2, "V1LayerParameter", "repeated"),
        ],
    }
    file = descriptor_pb2.FileDescriptorProto(name="weights.proto", package="caffe")
    kinds = descriptor_pb2.FieldDescriptorProto
    for message_name, fields in messages.items():
        message = file.message_type.add(name=message_name)
        for name, number, kind, how in fields:
            label = kinds.LABEL_REPEATED if how else kinds.LABEL_OPTIONAL
            field = message.field.add(name=name, number=number, label=label)
            if kind in messages:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".caffe.{kind}"
            else:
                field.type = getattr(kinds, f"TYPE_{kind.upper()}")
            if how == "packed":
                field.options.packed = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("caffe.NetParameter"))()


def from_convolution(layer, kernel):
    """The kernel of a layer, (out, in, height, width) -> (height, width, in, out)."""
    check(
        kernel.ndim == 4,
        f"the kernel of {layer} must be (out, in, height, width)",
        shape=kernel.shape,
    )
    return kernel.transpose(2, 3, 1, 0)


def from_fully_connected(layer, kernel, maps_shape=None):
    """The kernel of a layer, (out, in) -> (in, out).

    Args:
        layer: Its name, for errors.
        kernel: (out, in) floats, or (1, 1, out, in).
        maps_shape: (channels, height, width) of the feature maps that it is applied to, if any:
            Caffe flattens them with channels first, Keras with channels last.
    """
    check(kernel.ndim >= 2, f"the kernel of {layer} must be (out, in)", shape=kernel.shape)
    outputs, inputs = kernel.shape[-2:]
    if maps_shape is None:
        return kernel.reshape(outputs, inputs).T
    check(inputs == np.prod(maps_shape), f"{layer} must take maps of {maps_shape}", size=inputs)
    return kernel.reshape(outputs, *maps_shape).transpose(2, 3, 1, 0).reshape(-1, outputs)
