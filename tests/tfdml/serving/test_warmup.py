import numpy as np
import pytest
import tensorflow as tf

from pipelines import Reader
from tfdml import losses
from tfdml.models import build_embedder
from tfdml.serving import ServedModel
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


def test_every_signature_of_a_version_has_a_request_that_it_answers(served):
    version = served.folder / "2"
    signatures = tf.saved_model.load(str(version)).signatures
    assert len(signatures) == 6
    check_requests(version / "assets.extra", signatures, "embedder")


def test_a_model_of_grey_images_answers_its_requests(tmp_path):
    size = (16, 12, 1)
    embedder = build_embedder("small_cnn", 8, input_shape=size)
    signatures = ServedModel(embedder, Reader(size), losses.get("npair")).signatures
    signatures = {name: signatures[name] for name in ("embed_images", "serving_default")}
    functions = {name: each.get_concrete_function() for name, each in signatures.items()}
    write_warmup(tmp_path, functions, model_name="a model", image_shape=size)
    check_requests(tmp_path, signatures, "a model")


def check_requests(folder, signatures, name):
    """Checks that there is a request for each signature, and that it is answered row by row."""
    requests = list(requests_of(folder))
    assert [request.model_spec.signature_name for request in requests] == list(signatures)
    for request in requests:
        assert request.model_spec.name == name
        inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        found = signatures[request.model_spec.signature_name](
            **{name: tf.constant(value) for name, value in inputs.items()}
        )
        rows = len(next(iter(inputs.values())))
        for values in found.values():
            assert values.shape[0] == rows
            assert np.isfinite(values).all()


def test_texts_and_tensors_of_any_length_are_read_again(tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None, 300, 200, 3], name="images" * 50)])
    def taken(images):
        return images

    functions = {"n" * 200: taken.get_concrete_function()}
    write_warmup(tmp_path, functions, model_name="m" * 20000, image_shape=(4, 4, 3))
    (request,) = requests_of(tmp_path)
    assert request.model_spec.name == "m" * 20000
    assert request.model_spec.signature_name == "n" * 200
    assert tf.make_ndarray(request.inputs["images" * 50]).shape == (1, 300, 200, 3)
