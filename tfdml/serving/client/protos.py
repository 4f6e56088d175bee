"""The messages of TensorFlow and of TF Serving, without TensorFlow.

`from tensorflow_serving.apis import predict_pb2` imports all of TensorFlow and Keras for the sake
of four small messages. What a message looks like stands as bytes in the generated files, so these
are read as data, not run, into a pool of descriptors of their own: nothing that a later
`import tensorflow` does could disagree with it.
"""

import ast
import functools
import importlib.util
import pathlib

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Packages of the files that `protoc` was given -> where their generated files are installed.
_MOVED = {"xla/": "tensorflow/compiler/xla/"}
_pool = descriptor_pool.DescriptorPool()


def message(file, name):
    """The class of a message.

    Args:
        file: The file that defines it, such as `tensorflow_serving/apis/predict.proto`.
        name: Its full name, such as `tensorflow.serving.PredictRequest`.

    Returns:
        A subclass of `google.protobuf.message.Message`.

    Raises:
        ImportError: If the package that the file is part of is not installed.

    Example:
        >>> tensor = message("tensorflow/core/framework/tensor.proto", "tensorflow.TensorProto")
        >>> tensor(float_val=[0.5]).float_val
        [0.5]
    """
    _add(file)
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))


@functools.cache
def _add(file):
    """Adds a file to the pool, after all that it imports."""
    serialized = _serialized(_generated(file))
    for imported in descriptor_pb2.FileDescriptorProto.FromString(serialized).dependency:
        _add(imported)
    _pool.AddSerializedFile(serialized)


def _generated(file):
    """Path of the Python module that `protoc` made of a file."""
    for package, moved in _MOVED.items():
        if file.startswith(package):
            file = moved + file.removeprefix(package)
    package, _, rest = file.removesuffix(".proto").partition("/")
    if package == "google":
        package, rest = "google.protobuf", rest.removeprefix("protobuf/")
    found = importlib.util.find_spec(package)  # of a package at the top: it is not imported
    for folder in (found and found.submodule_search_locations) or ():
        path = pathlib.Path(folder, f"{rest}_pb2.py")
        if path.is_file():
            return path
    raise ImportError(
        f"there is no {file}: messages of tensorflow-serving-api and of TensorFlow are what gRPC "
        'needs. pip install "tfdml[serving]", or call the server by http://'
    )


def _serialized(path):
    """The description that a generated module hands to the pool of all messages."""
    for node in ast.walk(ast.parse(path.read_bytes(), filename=str(path))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "AddSerializedFile":
            return ast.literal_eval(node.args[0])
    raise ImportError(f"{path} is not the module of a message that protoc generates")
