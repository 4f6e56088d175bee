"""Files of a network for other runtimes, beside Keras; of those runtimes that are installed."""

import importlib.util
import json

import keras
import numpy as np
import pytest
from decisions import CALIBRATIONS, check_equal, decision_of
from served_models import installed_formats

from tfdml import losses
from tfdml.models import build_embedder
from tfdml.serving import ExportOptions, export_model, load_network, runtimes
from tfdml.serving.metadata import read_metadata
from tfdml.serving.options import FORMATS

SIZE, LEVELS = (12, 10, 3), 2
EVERY = ",".join(["saved_model", *installed_formats()])


@pytest.fixture(scope="module")
def embedder():
    keras.utils.set_random_seed(0)
    return build_embedder("small_cnn", 4, input_shape=SIZE, levels=LEVELS)


@pytest.fixture(scope="module")
def images():
    """Noise of different brightness, of which the embeddings differ."""
    rng = np.random.default_rng(0)
    return (rng.uniform(0, 255, (60, *SIZE)) * rng.uniform(size=(60, 1, 1, 1))).astype("float32")


@pytest.fixture(scope="module")
def loss():
    loss = losses.get("pddm", similarity={"seed": 0})
    loss.similarity_layer.build((None, 4 * LEVELS))
    return loss


@pytest.fixture(params=FORMATS)
def kind(request):
    if request.param not in installed_formats():
        pytest.skip(f"needs {request.param}")
    return request.param


@pytest.fixture(
    scope="module",
    params=[
        ("mahalanobis", CALIBRATIONS[1]),
        pytest.param(("ratio", CALIBRATIONS[0]), marks=pytest.mark.slow),
    ],
    ids=["mahalanobis", "ratio"],
)
def decision(request, embedder, images):
    rows, (method, calibration) = np.asarray(embedder(images)), request.param
    return decision_of(method, rows, calibration, rows)


@pytest.fixture(scope="module")
def version(embedder, loss, decision, tmp_path_factory):
    """A version with the files of all runtimes that are installed."""
    path = tmp_path_factory.mktemp("exact") / "1"
    options = ExportOptions(format=EVERY, licence="MIT")
    return export_model(embedder, path, loss=loss, decision=decision, options=options)


@pytest.fixture(scope="module", params=["int8", pytest.param("float16", marks=pytest.mark.slow)])
def rounded(request, embedder, tmp_path_factory):
    """A precision, and a version of it."""
    path = tmp_path_factory.mktemp(request.param) / "1"
    options = ExportOptions(precision=request.param, format=EVERY)
    return request.param, export_model(embedder, path, options=options)


def file_in(version, kind, name="model"):
    return version / f"{name}{FORMATS[kind][0]}"


def size_of(path):
    return sum(file.stat().st_size for file in runtimes.parts_of(path)) / 1e6


def test_a_file_has_embeddings_those_of_the_levels_and_decisions(
    version, kind, embedder, decision, images
):
    network, rows = load_network(file_in(version, kind)), np.asarray(embedder(images))
    found, expected = network(images=images), decision(rows)
    assert set(found) == {"embedding", "embedding1", "embedding2", *expected}
    np.testing.assert_allclose(found["embedding"], rows, atol=1e-5)
    for level, part in enumerate(np.split(rows, LEVELS, axis=1), start=1):
        np.testing.assert_allclose(found[f"embedding{level}"], part, atol=1e-5)
    assert np.ptp(expected["probability"]) > 0.3
    check_equal(found, expected)
    assert found["known"].dtype == bool
    np.testing.assert_allclose(network(images=images[:1])["embedding"], rows[:1], atol=1e-5)


def test_a_file_has_the_learned_similarity(version, kind, loss, rng):
    a, b = rng.normal(size=(2, 4, 4 * LEVELS)).astype("float32")
    network = load_network(file_in(version, kind, "similarity"))
    found = network(embeddings_a=a, embeddings_b=b)["similarity"]
    np.testing.assert_allclose(found, loss.similarity(a, b), atol=1e-5)
    assert np.ptp(found) > 1e-3


def test_the_files_are_stated(version, kind):
    stated = read_metadata(version)
    assert (stated["format"], stated["colours"]) == (EVERY, "RGB")
    assert stated["image_size"] == [*SIZE]
    files = {name: file for name, file in stated["files"].items() if file["format"] == kind}
    assert set(files) == {file_in(version, kind, name).name for name in ("model", "similarity")}
    for name, file in files.items():
        assert 0 < file["largest_difference"] < 1e-4
        assert file["megabytes"] == size_of(version / name)


def test_rounded_weights_are_small_and_near(rounded, version, kind, embedder, images):
    precision, path = rounded
    file = file_in(path, kind)
    share = size_of(file) / size_of(file_in(version, kind))
    assert share < {"float16": 0.7, "int8": 0.55}[precision]
    found = load_network(file)(images=images)["embedding"]
    np.testing.assert_allclose(found, embedder(images), atol=0.05)


@pytest.mark.parametrize("kind", ["onnx"], indirect=True)
def test_other_numbers_than_those_of_keras_are_not_written(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(runtimes, "TOLERANCE", -1.0)
    embedder = keras.Sequential([keras.Input(SIZE), keras.layers.GlobalAveragePooling2D()])
    with pytest.raises(ValueError, match=r"must have the numbers of Keras.* largest_difference="):
        export_model(embedder, tmp_path / "mine" / "1", format=kind)
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_is_named(version, kind, tmp_path):
    whole = file_in(version, kind)
    (tmp_path / whole.name).write_bytes(whole.read_bytes()[:-100])
    whole.with_suffix(".bin").exists() and (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=f"cannot be read by {kind} \\(.+\\)$"):
        load_network(tmp_path / whole.name)
    extra = tmp_path / "assets.extra"
    extra.mkdir()
    stated = version / "assets.extra" / "metadata.json"
    (extra / "metadata.json").write_bytes(stated.read_bytes())
    with pytest.raises(ValueError, match=r"is damaged, or changed since its export"):
        load_network(tmp_path / whole.name)


@pytest.mark.parametrize("kind", ["onnx"], indirect=True)
def test_onnx_states_what_it_takes_and_a_newer_file_is_rejected(version, kind, tmp_path):
    onnx = pytest.importorskip("onnx")
    network = onnx.load(file_in(version, kind))
    stated = {each.key: each.value for each in network.metadata_props}
    assert stated["licence"] == "MIT"
    assert json.loads(stated["image_size"]) == [*SIZE]
    assert (stated["colours"], stated["format"]) == ("RGB", EVERY)
    network.ir_version = 99
    onnx.save(network, tmp_path / "newer.onnx")
    with pytest.raises(ValueError, match=r"cannot be read by onnx \(.*version: 99"):
        load_network(tmp_path / "newer.onnx")


def test_what_is_no_network_is_rejected(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.onnx, \.tflite, \.xml"):
        load_network(tmp_path / "saved_model.pb")


def test_a_runtime_that_is_not_installed_is_named_before_any_work(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    words = r"openvino needs openvino, nncf: pip install \"tfdml\[openvino\]\""
    with pytest.raises(ValueError, match=words):
        ExportOptions(format="saved_model,openvino")
    with pytest.raises(ValueError, match="`format` must be one of 'saved_model', 'onnx', "):
        ExportOptions(format="onx")
    with pytest.raises(TypeError, match="`format` must be a text"):
        ExportOptions(format=["onnx"])
