"""SavedModels run as TF Serving runs them: their graph in a session, without Keras."""

import grpc
import numpy as np
import tensorflow as tf


class RejectedError(Exception):
    """What TensorFlow says instead of a result, and the name of its code."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Session:
    """A SavedModel, given by the folder that holds `saved_model.pb`."""

    def __init__(self, version):
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        loaded = tf.compat.v1.saved_model.load(self._session, ["serve"], str(version))
        self.signatures = dict(loaded.signature_def)

    def run(self, signature, inputs):
        """What a signature gives for {name: array, or list of bytes}: {name: array}."""
        definition = self.signatures.get(signature)
        if definition is None:
            text = f'Serving signature name: "{signature}" not found in signature def'
            raise RejectedError("INVALID_ARGUMENT", text)
        if set(definition.inputs) != set(inputs):
            text = f"input size does not match signature: {[*inputs]}, {[*definition.inputs]}"
            raise RejectedError("INVALID_ARGUMENT", text)
        feeds = {}
        for name, value in inputs.items():
            value = np.array([*value, None], object)[:-1] if isinstance(value, list) else value
            dtype = tf.as_dtype(definition.inputs[name].dtype)
            if tf.as_dtype(value.dtype) != dtype:
                text = f"Expects {name} to be {dtype.name} but {value.dtype.name} is provided"
                raise RejectedError("INVALID_ARGUMENT", text)
            feeds[definition.inputs[name].name] = value
        fetches = {name: output.name for name, output in definition.outputs.items()}
        try:
            return self._session.run(fetches, feeds)
        except tf.errors.OpError as error:
            (code,) = (code for code in grpc.StatusCode if code.value[0] == error.error_code)
            text = error.message.removeprefix("Graph execution error:\n\n")
            raise RejectedError(code.name, text) from error
        except ValueError as error:  # of another shape
            raise RejectedError("INVALID_ARGUMENT", str(error)) from error
