"""Exported models in a process that imports neither TensorFlow nor Keras."""

import subprocess
import sys

import c_api
import numpy as np
import pytest
import tensorflow as tf

from pipelines import Reader
from tfdml.models import build_embedder, first_levels
from tfdml.serving import export_model

SIZE = (16, 12, 3)
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="names the libraries of the Linux wheels"
)


def run_apart(jobs, folder):
    """Runs jobs (version, signature, inputs) in one process: a list of {name: array}."""
    arguments = []
    for number, (version, signature, inputs) in enumerate(jobs):
        given, found = folder / f"in{number}.npz", folder / f"out{number}.npz"
        arrays = {
            name: np.array([*value, None], object)[:-1] if isinstance(value, list) else value
            for name, value in inputs.items()
        }
        np.savez(given, **arrays)
        arguments += [version, signature, given, found]
    command = [sys.executable, c_api.__file__, *arguments]
    run = subprocess.run([*map(str, command)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    return [
        dict(np.load(folder / f"out{number}.npz", allow_pickle=True)) for number in range(len(jobs))
    ]


def own_signatures(version):
    return {name for name in c_api.signatures_of(version) if not name.startswith("__")}


def test_every_signature_gives_the_numbers_of_keras(
    served, complete, complete_signatures, contents, tmp_path, rng
):
    model = served.models[2]
    images = rng.uniform(0, 255, (3, *SIZE)).astype("float32")
    a, b = (rng.normal(size=(5, 8)).astype("float32") for _ in range(2))
    rows, encoded = {"embeddings_a": a, "embeddings_b": b}, {"image_bytes": contents}
    pairs = {"image_bytes_a": contents, "image_bytes_b": contents[::-1]}
    similarities = model.similarity(np.repeat(a, 5, axis=0), np.tile(b, (5, 1))).reshape(5, 5)
    learned = {
        "serving_default": (encoded, served.embed(contents)),
        "embed_images": ({"images": images}, model.embed(images)),
        "read_images": (encoded, np.stack([Reader(SIZE)(content) for content in contents])),
        "similarity": (pairs, served.similarity(contents, contents[::-1])),
        "score_pairs": (rows, model.similarity(a, b)),
        "score_matrix": (rows, similarities),
    }
    # Nothing learned: the cosine.
    plain = {"similarity": (pairs, served.similarity(contents, contents[::-1], version=1))}
    assert own_signatures(served.folder / "2") == set(learned)
    assert own_signatures(served.folder / "1") == set(learned) - {"score_pairs", "score_matrix"}

    whole = build_embedder("small_cnn", 4, input_shape=SIZE, levels=3, mirror=True)
    version, expected = exported(first_levels(whole, 2), SIZE, contents, tmp_path)
    assert expected.shape == (5, 8)
    jobs = [
        *((served.folder / "2", name, *job) for name, job in learned.items()),
        *((served.folder / "1", name, *job) for name, job in plain.items()),
        (version, "serving_default", encoded, expected),
    ]
    bad = {"image_bytes": [*contents, b"", b"GIF89a"]}
    optional = (complete, "neighbours", bad)
    found = run_apart([*(job[:3] for job in jobs), optional], tmp_path)
    for (version, name, _, expected), outputs in zip(jobs, found, strict=False):
        (values,) = outputs.values()
        said = f"{name} of {version}"
        assert np.ptp(expected) > 0, said
        np.testing.assert_allclose(values, expected, atol=1e-5, rtol=1e-5, err_msg=said)
    outputs = found[-1]
    expected = complete_signatures["neighbours"](image_bytes=tf.constant(bad["image_bytes"]))
    assert set(outputs) == set(expected)
    assert outputs["valid"].tolist() == [True] * 5 + [False] * 2
    np.testing.assert_allclose(outputs["distances"], expected["distances"], atol=1e-5)
    for name in ("ids", "classes"):
        assert outputs[name].tolist() == expected[name].numpy().tolist()


def exported(embedder, size, contents, folder):
    """The version of an embedder, and its embeddings by Keras."""
    reading = Reader(size)
    expected = embedder(np.stack([reading(content) for content in contents]))
    return export_model(embedder, folder / "1", reading), expected.numpy()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backbone", "size"), [("googlenet", (64, 64, 3)), ("mobilenet_v2", (32, 32, 3))]
)
def test_backbones_give_the_numbers_of_keras(backbone, size, tmp_path, contents):
    embedder = build_embedder(backbone, 8, input_shape=size)
    version, expected = exported(embedder, size, contents, tmp_path)
    (found,) = run_apart([(version, "serving_default", {"image_bytes": contents})], tmp_path)
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(found["embedding"], expected, atol=1e-5)


def test_refusals_leave_the_session_as_it_was(served, contents):
    # In this process TensorFlow was imported first, so that both can be here.
    session = c_api.Session(served.folder / "2")
    for inputs, said in [
        ({"image_bytes": [contents[0], b"junk"]}, "Unknown image file format|is not a JPEG"),
        ({"image_bytes": np.zeros(2, "float32")}, "Expects arg.0. to be string but float"),
        ({}, "You must feed a value for placeholder"),
    ]:
        with pytest.raises(c_api.RejectedError, match=said) as rejected:
            session.run("serving_default", inputs)
        assert rejected.value.code == "INVALID_ARGUMENT"
    found = session.run("serving_default", {"image_bytes": contents})
    np.testing.assert_allclose(found["embedding"], served.embed(contents), atol=1e-5)
