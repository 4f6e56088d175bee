"""The messages of tensorflow-serving-api, without importing TensorFlow.

They import messages of the package `tensorflow`, and with it all of TensorFlow and Keras, unless an
empty module stands in for it meanwhile.
"""

import importlib.util
import sys

_spec = None if "tensorflow" in sys.modules else importlib.util.find_spec("tensorflow")
if _spec is not None:
    sys.modules["tensorflow"] = importlib.util.module_from_spec(_spec)
try:
    from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2, predict_pb2
finally:
    if _spec is not None:
        del sys.modules["tensorflow"]

METHODS = {  # of a server -> its service, and the messages that it takes and returns
    name: (service, getattr(messages, f"{name}Request"), getattr(messages, f"{name}Response"))
    for name, service, messages in (
        ("Predict", "PredictionService", predict_pb2),
        ("GetModelMetadata", "PredictionService", get_model_metadata_pb2),
        ("GetModelStatus", "ModelService", get_model_status_pb2),
    )
}
