import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tfdml.serving.warmup import FILE


def requests_of(folder):
    """The requests as the messages of tensorflow-serving-api."""
    prediction_log = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    for record in tf.data.TFRecordDataset(str(folder / FILE)):
        log = prediction_log.PredictionLog.FromString(record.numpy())
        assert log.WhichOneof("log_type") == "predict_log"
        # Nothing was written that the message does not know.
        assert log.SerializeToString(deterministic=True) == record.numpy()
        yield log.predict_log.request


def test_every_signature_of_a_version_has_a_request_that_it_answers(complete, complete_signatures):
    requests = list(requests_of(complete / "assets.extra"))
    names = [request.model_spec.signature_name for request in requests]
    assert names == list(complete_signatures)
    assert len(names) == 6
    for name, request in zip(names, requests, strict=True):
        assert request.model_spec.name == complete.parent.name
        inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        found = complete_signatures[name](**{name: tf.constant(v) for name, v in inputs.items()})
        rows = len(next(iter(inputs.values())))
        for values in found.values():
            assert values.shape[0] == rows
            assert values.dtype == tf.string or np.isfinite(values).all()
    encoded = requests[names.index("serving_default")].inputs["image_bytes"].string_val
    images = [Image.open(io.BytesIO(each)) for each in encoded]
    assert [(image.format, image.size) for image in images] == [
        ("JPEG", (12, 16)),
        ("PNG", (12, 16)),
    ]
