"""SavedModels run by the C API of TensorFlow, as TF Serving does: no Python of TensorFlow or Keras.

    python tests/serving_protocol/c_api.py VERSION SIGNATURE INPUTS.npz OUTPUTS.npz [VERSION ...]

Where this runs in a process of its own, the shared libraries of the wheel are all that is loaded
of it. (`import tensorflow` after them ends a process; the other order works.)
"""

import ctypes
import importlib.util
import pathlib
import sys

import numpy as np

from tfdml.client.protos import message

# Numbers of `tensorflow.DataType`.
STRING = 7
DTYPES = {1: np.float32, 2: np.float64, 3: np.int32, 4: np.uint8, 9: np.int64, 10: np.bool_}
NUMBERS = {np.dtype(dtype): number for number, dtype in DTYPES.items()}
TSTRING_BYTES = 24
CODES = (  # of `absl::StatusCode`, in their order
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
)
POINTERS = (
    *("TF_NewGraph", "TF_NewStatus", "TF_NewSessionOptions", "TF_AllocateTensor"),
    *("TF_TensorData", "TF_GraphOperationByName", "TF_LoadSessionFromSavedModel"),
    "TF_StringGetDataPointer",
)

pointer, size = ctypes.c_void_p, ctypes.c_size_t


class Output(ctypes.Structure):
    _fields_ = [("operation", pointer), ("index", ctypes.c_int)]


def load_library():
    folder = pathlib.Path(importlib.util.find_spec("tensorflow").origin).parent
    # Not RTLD_GLOBAL: their BoringSSL would take the place of the OpenSSL of Python's modules.
    ctypes.CDLL(str(folder / "libtensorflow_framework.so.2"))
    library = ctypes.CDLL(str(folder / "libtensorflow_cc.so.2"))
    for name in POINTERS:
        getattr(library, name).restype = pointer
    library.TF_Message.restype = ctypes.c_char_p
    library.TF_Dim.restype = ctypes.c_int64
    library.TF_StringGetSize.restype = size
    return library


class RejectedError(Exception):
    """What TensorFlow says instead of a result, and the name of its code."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def signatures_of(version):
    """{name: `SignatureDef`} of a SavedModel."""
    saved_model = message("tensorflow/core/protobuf/saved_model.proto", "tensorflow.SavedModel")
    saved = saved_model.FromString(pathlib.Path(version, "saved_model.pb").read_bytes())
    (graph,) = (graph for graph in saved.meta_graphs if "serve" in graph.meta_info_def.tags)
    return dict(graph.signature_def)


class Session:
    """A SavedModel.

    Args:
        version: Path of the folder that holds `saved_model.pb`.

    Attributes:
        signatures: {name: `SignatureDef`}.
    """

    def __init__(self, version):
        self.signatures = signatures_of(version)
        self._tf = load_library()
        self._graph = pointer(self._tf.TF_NewGraph())
        options, tags = pointer(self._tf.TF_NewSessionOptions()), (ctypes.c_char_p * 1)(b"serve")
        with Status(self._tf) as status:
            path = str(version).encode()
            self._session = pointer(
                self._tf.TF_LoadSessionFromSavedModel(
                    options, None, path, tags, 1, self._graph, None, status
                )
            )
        self._tf.TF_DeleteSessionOptions(options)

    def run(self, signature, inputs):
        """What a signature gives.

        Args:
            signature: Its name.
            inputs: {name: array, or list of bytes}.

        Returns:
            {name: array, of objects that are bytes where the output is a string}.

        Raises:
            RejectedError: If TensorFlow does not take them.
        """
        definition = self.signatures[signature]
        names = sorted(definition.outputs)
        feeds = [self._place(definition.inputs[name].name) for name in inputs]
        fetches = [self._place(definition.outputs[name].name) for name in names]
        given = [self._tensor(value) for value in inputs.values()]
        found = (pointer * len(names))()
        try:
            with Status(self._tf) as status:
                self._tf.TF_SessionRun(
                    self._session,
                    None,
                    *((Output * len(feeds))(*feeds), (pointer * len(given))(*given), len(given)),
                    *((Output * len(fetches))(*fetches), found, len(fetches)),
                    *(None, 0, None, status),
                )
            return {
                name: self._array(pointer(each)) for name, each in zip(names, found, strict=True)
            }
        finally:
            for value, tensor in zip(inputs.values(), given, strict=True):
                for i in range(len(value) if isinstance(value, list) else 0):
                    self._tf.TF_StringDealloc(
                        pointer(self._tf.TF_TensorData(tensor) + i * TSTRING_BYTES)
                    )
                self._tf.TF_DeleteTensor(tensor)
            for tensor in filter(None, found):
                self._tf.TF_DeleteTensor(pointer(tensor))

    def _place(self, name):
        operation, _, index = name.partition(":")
        found = self._tf.TF_GraphOperationByName(self._graph, operation.encode())
        assert found, f"the graph has no {name}"
        return Output(found, int(index))

    def _tensor(self, value):
        if not isinstance(value, list):
            value = np.ascontiguousarray(value)
            tensor = self._allocate(NUMBERS[value.dtype], value.shape, value.nbytes)
            ctypes.memmove(self._tf.TF_TensorData(tensor), value.ctypes.data, value.nbytes)
            return tensor
        tensor = self._allocate(STRING, [len(value)], TSTRING_BYTES * len(value))
        for i, content in enumerate(value):
            place = pointer(self._tf.TF_TensorData(tensor) + i * TSTRING_BYTES)
            self._tf.TF_StringInit(place)
            self._tf.TF_StringCopy(place, ctypes.c_char_p(content), size(len(content)))
        return tensor

    def _allocate(self, number, shape, nbytes):
        sides = (ctypes.c_int64 * len(shape))(*shape)
        return pointer(self._tf.TF_AllocateTensor(number, sides, len(shape), size(nbytes)))

    def _array(self, tensor):
        shape = [self._tf.TF_Dim(tensor, i) for i in range(self._tf.TF_NumDims(tensor))]
        data, number = self._tf.TF_TensorData(tensor), self._tf.TF_TensorType(tensor)
        if number != STRING:
            array = np.empty(shape, DTYPES[number])
            ctypes.memmove(array.ctypes.data, data, array.nbytes)
            return array
        contents = np.empty(int(np.prod(shape)), object)
        for i in range(len(contents)):
            place = pointer(data + i * TSTRING_BYTES)
            start = self._tf.TF_StringGetDataPointer(place)
            contents[i] = ctypes.string_at(start, self._tf.TF_StringGetSize(place))
        return contents.reshape(shape)


class Status:
    """A `TF_Status`, which raises what it was given when the block ends."""

    def __init__(self, library):
        self._tf, self._status = library, pointer(library.TF_NewStatus())

    def __enter__(self):
        return self._status

    def __exit__(self, *error):
        code, text = self._tf.TF_GetCode(self._status), self._tf.TF_Message(self._status)
        self._tf.TF_DeleteStatus(self._status)
        if code:
            raise RejectedError(CODES[code], text.decode(errors="replace"))


def main(*jobs):
    sessions = {version: Session(version) for version in jobs[::4]}
    for version, signature, inputs, outputs in zip(*(jobs[i::4] for i in range(4)), strict=True):
        with np.load(inputs, allow_pickle=True) as archive:
            arrays = dict(archive)
        given = {
            name: array.tolist() if array.dtype == object else array
            for name, array in arrays.items()
        }
        np.savez(outputs, **sessions[version].run(signature, given))
    assert not {"tensorflow", "keras"} & set(sys.modules)


if __name__ == "__main__":
    main(*sys.argv[1:])
