import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tfdml.serving.warmup import FILE, write_warmup


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


def test_names_and_tensors_of_any_length_are_read_again(tmp_path):
    encoded = tf.TensorSpec([None], tf.string, name="image_bytes")
    large = tf.TensorSpec([None, 300, 200, 3], name="images" * 50)

    @tf.function(input_signature=[encoded, large])
    def taken(image_bytes, images):
        return images

    functions = {"n" * 200: taken.get_concrete_function()}
    write_warmup(tmp_path, functions, model_name="m" * 20000, image_shape=(4, 5, 1))
    (request,) = requests_of(tmp_path)
    assert request.model_spec.name == "m" * 20000
    assert request.model_spec.signature_name == "n" * 200
    assert tf.make_ndarray(request.inputs["images" * 50]).shape == (1, 300, 200, 3)
    images = [Image.open(io.BytesIO(each)) for each in request.inputs["image_bytes"].string_val]
    assert [(image.format, image.mode, image.size) for image in images] == [
        ("JPEG", "L", (5, 4)),
        ("PNG", "L", (5, 4)),
    ]
