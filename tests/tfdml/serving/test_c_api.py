"""Exported models in a process that imports neither TensorFlow nor Keras."""

import subprocess
import sys

import c_api
import numpy as np
import pytest
import tensorflow as tf

from pipelines import images as preprocessing
from tfdml.models import build_embedder, first_levels
from tfdml.serving import ExportOptions, Gallery, export_model

SIZE = (16, 12, 3)
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="names the libraries of the Linux wheels"
)


def run_apart(version, jobs, folder):
    """What signatures give in a process of its own: a list of {name: array}."""
    arguments = []
    for number, (signature, inputs) in enumerate(jobs):
        given, found = folder / f"in{number}.npz", folder / f"out{number}.npz"
        arrays = {
            name: np.array([*value, None], object)[:-1] if isinstance(value, list) else value
            for name, value in inputs.items()
        }
        np.savez(given, **arrays)
        arguments += [signature, given, found]
    command = [sys.executable, c_api.__file__, version, *arguments]
    run = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    return [
        dict(np.load(folder / f"out{number}.npz", allow_pickle=True)) for number in range(len(jobs))
    ]


def test_every_signature_gives_the_numbers_of_keras(served, contents, tmp_path, rng):
    model = served.models[2]
    images = rng.uniform(0, 255, (3, *SIZE)).astype("float32")
    a, b = (rng.normal(size=(5, 8)).astype("float32") for _ in range(2))
    reading = preprocessing.reader(SIZE)
    jobs = {
        "serving_default": ({"image_bytes": contents}, served.embed(contents)),
        "embed_images": ({"images": images}, model.embed(images)),
        "read_images": (
            {"image_bytes": contents},
            np.stack([reading(content) for content in contents]),
        ),
        "similarity": (
            {"image_bytes_a": contents, "image_bytes_b": contents[::-1]},
            served.similarity(contents, contents[::-1]),
        ),
        "score_pairs": ({"embeddings_a": a, "embeddings_b": b}, model.similarity(a, b)),
        "score_matrix": (
            {"embeddings_a": a, "embeddings_b": b},
            model.similarity(np.repeat(a, 5, axis=0), np.tile(b, (5, 1))).reshape(5, 5),
        ),
    }
    version = served.folder / "2"
    own = {name for name in c_api.signatures_of(version) if not name.startswith("__")}
    assert own == set(jobs)
    found = run_apart(version, [(name, inputs) for name, (inputs, _) in jobs.items()], tmp_path)
    for (name, (_, expected)), outputs in zip(jobs.items(), found, strict=True):
        (values,) = outputs.values()
        assert np.ptp(expected) > 0, name
        np.testing.assert_allclose(values, expected, atol=1e-5, rtol=1e-5, err_msg=name)


def test_levels_and_mirror_images_give_the_numbers_of_keras(tmp_path, contents):
    whole = build_embedder("small_cnn", 4, input_shape=SIZE, levels=3, mirror=True)
    embedder = first_levels(whole, 2)
    reading = preprocessing.reader(SIZE)
    version = export_model(embedder, tmp_path / "1", reading)
    (found,) = run_apart(version, [("serving_default", {"image_bytes": contents})], tmp_path)
    expected = embedder(np.stack([reading(content) for content in contents]))
    assert expected.shape == (5, 8)
    np.testing.assert_allclose(found["embedding"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("backbone", "size"), [("googlenet", (64, 64, 3)), ("mobilenet_v2", (32, 32, 3))]
)
def test_backbones_give_the_numbers_of_keras(backbone, size, tmp_path, contents):
    embedder, reading = build_embedder(backbone, 8, input_shape=size), preprocessing.reader(size)
    version = export_model(embedder, tmp_path / "1", reading)
    (found,) = run_apart(version, [("serving_default", {"image_bytes": contents})], tmp_path)
    expected = embedder(np.stack([reading(content) for content in contents]))
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(found["embedding"], expected, atol=1e-5)


def test_what_is_optional_gives_the_numbers_of_the_functions(tmp_path, contents, rng):
    rows = rng.normal(size=(3, 8))
    version = export_model(
        build_embedder("small_cnn", 8, input_shape=SIZE),
        tmp_path / "1",
        preprocessing.reader(SIZE),
        options=ExportOptions(precision="int8", on_bad_image="nan"),
        classes=Gallery(["x", "y", "z"], rows),
        gallery=Gallery(["1.png", "2.png", "3.png"], rows),
        top=2,
    )
    contents = [*contents, b"", b"GIF89a"]
    names = ("serving_default", "classify", "neighbours")
    jobs = [(name, {"image_bytes": contents}) for name in names]
    served = tf.saved_model.load(str(version)).signatures
    for (name, inputs), found in zip(jobs, run_apart(version, jobs, tmp_path), strict=True):
        expected = served[name](**{key: tf.constant(value) for key, value in inputs.items()})
        assert set(found) == set(expected)
        assert found["valid"].tolist() == [True] * 5 + [False] * 2
        for output, values in expected.items():
            if values.dtype == tf.string:
                assert found[output].tolist() == values.numpy().tolist()
            else:
                np.testing.assert_allclose(found[output], values, atol=1e-5)


def test_without_a_learned_similarity_it_gives_the_cosine_of_keras(served, contents, tmp_path):
    inputs = {"image_bytes_a": contents, "image_bytes_b": contents[::-1]}
    (found,) = run_apart(served.folder / "1", [("similarity", inputs)], tmp_path)
    expected = served.similarity(contents, contents[::-1], version=1)
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(found["similarity"], expected, atol=1e-5)


def test_refusals_leave_the_session_as_it_was(served, contents):
    # In this process TensorFlow was imported first, so that both can be here.
    session = c_api.Session(served.folder / "2")
    for inputs, said in [
        ({"image_bytes": [contents[0], b"junk"]}, "Unknown image file format|is no JPEG"),
        ({"image_bytes": np.zeros(2, "float32")}, "Expects arg.0. to be string but float"),
        ({}, "You must feed a value for placeholder"),
    ]:
        with pytest.raises(c_api.RefusedError, match=said) as refused:
            session.run("serving_default", inputs)
        assert refused.value.code == "INVALID_ARGUMENT"
    found = session.run("serving_default", {"image_bytes": contents})
    np.testing.assert_allclose(found["embedding"], served.embed(contents), atol=1e-5)
