"""Exported models in sessions, as TF Serving runs them."""

import numpy as np
import pytest
import tensorflow as tf
from sessions import Session

from pipelines import Reader
from tfdml.models import build_embedder
from tfdml.serving import export_model

SIZE = (16, 12, 3)


@pytest.fixture(scope="module")
def session(served):
    """Of the version with a learned similarity."""
    return Session(served.folder / "2")


def names_of(session):
    return {name for name in session.signatures if not name.startswith("__")}


def test_every_signature_gives_the_numbers_of_keras(served, session, contents, rng):
    model = served.models[2]
    images = rng.uniform(0, 255, (3, *SIZE)).astype("float32")
    a, b = (rng.normal(size=(5, 8)).astype("float32") for _ in range(2))
    rows, encoded = {"embeddings_a": a, "embeddings_b": b}, {"image_bytes": contents}
    pairs = {"image_bytes_a": contents, "image_bytes_b": contents[::-1]}
    similarities = model.similarity(np.repeat(a, 5, axis=0), np.tile(b, (5, 1))).reshape(5, 5)
    jobs = {
        "serving_default": (encoded, served.embed(contents)),
        "embed_images": ({"images": images}, model.embed(images)),
        "read_images": (encoded, np.stack([Reader(SIZE)(content) for content in contents])),
        "similarity": (pairs, served.similarity(contents, contents[::-1])),
        "score_pairs": (rows, model.similarity(a, b)),
        "score_matrix": (rows, similarities),
    }
    assert names_of(session) == {*jobs, "classify", "decide"}
    for name, (inputs, expected) in jobs.items():
        (values,) = session.run(name, inputs).values()
        assert np.ptp(expected) > 0, name
        np.testing.assert_allclose(values, expected, atol=1e-5, rtol=1e-5, err_msg=name)


def test_the_similarity_is_the_cosine_if_none_was_learned(served, contents):
    session = Session(served.folder / "1")
    assert names_of(session) == {"serving_default", "embed_images", "read_images", "similarity"}
    pairs = {"image_bytes_a": contents, "image_bytes_b": contents[::-1]}
    expected = served.similarity(contents, contents[::-1], version=1)
    found = session.run("similarity", pairs)["similarity"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_is_optional_is_answered(complete, complete_signatures, contents):
    images = [*contents, b"", b"GIF89a"]
    outputs = Session(complete).run("neighbours", {"image_bytes": images})
    expected = complete_signatures["neighbours"](image_bytes=tf.constant(images))
    assert set(outputs) == set(expected)
    assert outputs["valid"].tolist() == [True] * 5 + [False] * 2
    np.testing.assert_allclose(outputs["distances"], expected["distances"], atol=1e-5)
    for name in ("ids", "classes"):
        assert outputs[name].tolist() == expected[name].numpy().tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backbone", "size"), [("googlenet", (64, 64, 3)), ("mobilenet_v2", (32, 32, 3))]
)
def test_backbones_give_the_numbers_of_keras(backbone, size, tmp_path, contents):
    embedder, reading = build_embedder(backbone, 8, input_shape=size), Reader(size)
    version = export_model(embedder, tmp_path / "1", reading)
    expected = embedder(np.stack([reading(content) for content in contents])).numpy()
    found = Session(version).run("serving_default", {"image_bytes": contents})
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(found["embedding"], expected, atol=1e-5)
