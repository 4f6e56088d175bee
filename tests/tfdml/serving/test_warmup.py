import numpy as np
import pytest
import tensorflow as tf

from pipelines.images import reader
from tfdml import EmbeddingModel, losses
from tfdml.models import build_embedder
from tfdml.serving import export_model
from tfdml.serving.warmup import FILE, write_warmup


@pytest.fixture(scope="module", params=[1, 3], ids=["grey", "colour"])
def version(request, tmp_path_factory):
    """A model with all signatures, of grey or of coloured images."""
    size = (16, 12, request.param)
    model = EmbeddingModel(build_embedder("small_cnn", 8, input_shape=size))
    model.compile(loss=losses.get("pddm"))
    path = tmp_path_factory.mktemp("served") / "a model" / "1"
    return export_model(model.embedder, path, reader(size), loss=model.loss)


def requests_of(folder):
    """The requests as the messages of tensorflow-serving-api."""
    prediction_log = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    for record in tf.data.TFRecordDataset(str(folder / FILE)):
        log = prediction_log.PredictionLog.FromString(record.numpy())
        assert log.WhichOneof("log_type") == "predict_log"
        # Nothing was written that the message does not know.
        assert log.SerializeToString(deterministic=True) == record.numpy()
        yield log.predict_log.request


def test_every_signature_has_a_request_that_it_answers(version):
    signatures = tf.saved_model.load(str(version)).signatures
    requests = list(requests_of(version / "assets.extra"))
    assert [request.model_spec.signature_name for request in requests] == list(signatures)
    for request in requests:
        assert request.model_spec.name == "a model"
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
