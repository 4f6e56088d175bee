import io
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from pipelines import images as preprocessing
from tfdml.models import build_embedder
from tfdml.serving import export

SIZE = (16, 12, 3)


@pytest.fixture(scope="module")
def embedder():
    return build_embedder("small_cnn", 8, input_shape=SIZE)


@pytest.fixture
def version(embedder, tmp_path):
    path = tmp_path / "model" / "1"
    read_image = preprocessing.reader(SIZE)
    assert export(embedder, path, read_image, assets={"recipe.yaml": "loss: lifted\n"}) == path
    return path


def encoded(rng, kind, shape):
    buffer = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, shape).astype("uint8")).save(buffer, kind)
    return buffer.getvalue()


def test_serves_the_numbers_of_the_model_from_encoded_images(version, embedder, rng):
    contents = [encoded(rng, "PNG", (30, 20, 3)), encoded(rng, "JPEG", (17, 40))]
    read = [preprocessing.reader(SIZE)(tf.constant(content)) for content in contents]
    expected = embedder(tf.stack(read))
    serve = tf.saved_model.load(str(version)).signatures["serving_default"]
    served = serve(image_bytes=tf.constant(contents))["embedding"]
    np.testing.assert_allclose(served, expected, atol=1e-6)


def test_embeds_images_as_the_model_does(version, embedder, rng):
    images = rng.uniform(0, 255, (3, *SIZE)).astype("float32")
    embed = tf.saved_model.load(str(version)).signatures["embed_images"]
    np.testing.assert_allclose(
        embed(images=tf.constant(images))["embedding"], embedder(images), atol=1e-6
    )


def test_carries_its_assets(version):
    assert (version / "assets.extra" / "recipe.yaml").read_text() == "loss: lifted\n"


def test_never_overwrites_a_version(version, embedder):
    before = (version / "saved_model.pb").read_bytes()
    with pytest.raises(FileExistsError, match="A version is never overwritten: choose a new one"):
        export(embedder, version, preprocessing.reader(SIZE))
    assert (version / "saved_model.pb").read_bytes() == before


def test_a_failed_export_leaves_nothing(embedder, tmp_path):
    class Full:
        def items(self):
            raise OSError("No space left on device")

        def __bool__(self):
            return True

    with pytest.raises(OSError, match="No space left"):
        export(embedder, tmp_path / "model" / "1", preprocessing.reader(SIZE), assets=Full())
    assert not list(tmp_path.iterdir())


def test_sweeps_up_after_an_export_that_was_killed(embedder, tmp_path):
    for name in (".unfinished-1-x", ".unfinished-2-x"):
        (tmp_path / name / "variables").mkdir(parents=True)
    export(embedder, tmp_path / "1", preprocessing.reader(SIZE))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".unfinished-2-x", "1"]


C_API = """
import ctypes, pathlib, sys, importlib.util
import numpy as np

library = pathlib.Path(importlib.util.find_spec("tensorflow").origin).parent
ctypes.CDLL(str(library / "libtensorflow_framework.so.2"), mode=ctypes.RTLD_GLOBAL)
tf = ctypes.CDLL(str(library / "libtensorflow_cc.so.2"), mode=ctypes.RTLD_GLOBAL)
for name in ("TF_NewGraph", "TF_NewStatus", "TF_NewSessionOptions", "TF_AllocateTensor",
             "TF_TensorData", "TF_GraphOperationByName", "TF_LoadSessionFromSavedModel"):
    getattr(tf, name).restype = ctypes.c_void_p
tf.TF_Message.restype = ctypes.c_char_p
pointer = ctypes.c_void_p

class Output(ctypes.Structure):
    _fields_ = [("operation", pointer), ("index", ctypes.c_int)]

def check():
    assert tf.TF_GetCode(status) == 0, tf.TF_Message(status)

export, images = sys.argv[1], np.load(sys.argv[2])
input_name, output_name = sys.argv[3].split(":")[0], sys.argv[4].split(":")
status, graph = pointer(tf.TF_NewStatus()), pointer(tf.TF_NewGraph())
options, tags = pointer(tf.TF_NewSessionOptions()), (ctypes.c_char_p * 1)(b"serve")
session = pointer(tf.TF_LoadSessionFromSavedModel(
    options, None, export.encode(), tags, 1, graph, None, status))
check()
shape = (ctypes.c_int64 * images.ndim)(*images.shape)
tensor = pointer(tf.TF_AllocateTensor(1, shape, images.ndim, ctypes.c_size_t(images.nbytes)))
ctypes.memmove(tf.TF_TensorData(tensor), images.ctypes.data, images.nbytes)
feed = Output(tf.TF_GraphOperationByName(graph, input_name.encode()), 0)
fetch = Output(tf.TF_GraphOperationByName(graph, output_name[0].encode()), int(output_name[1]))
assert feed.operation and fetch.operation
result = pointer()
tf.TF_SessionRun(session, None, ctypes.byref(feed), ctypes.byref(tensor), 1, ctypes.byref(fetch),
                 ctypes.byref(result), 1, None, 0, None, status)
check()
rows = (ctypes.c_float * (len(images) * 8)).from_address(tf.TF_TensorData(result))
np.save(sys.argv[5], np.array(rows).reshape(len(images), 8))
assert not {"tensorflow", "keras", "tfdml"} & set(sys.modules)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="names the libraries of the Linux wheels")
def test_runs_through_the_c_api_without_python_tensorflow(version, embedder, rng, tmp_path):
    images = rng.uniform(0, 255, (3, *SIZE)).astype("float32")
    np.save(tmp_path / "images.npy", images)
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    graph = SavedModel.FromString((version / "saved_model.pb").read_bytes()).meta_graphs[0]
    signature = graph.signature_def["embed_images"]
    names = [signature.inputs["images"].name, signature.outputs["embedding"].name]
    paths = [str(version), str(tmp_path / "images.npy"), *names, str(tmp_path / "out.npy")]
    run = subprocess.run([sys.executable, "-c", C_API, *paths], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), embedder(images), atol=1e-5)
