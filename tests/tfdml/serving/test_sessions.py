"""Exported models in sessions, as TF Serving runs them."""

import numpy as np
import pytest
import sessions
import tensorflow as tf

from pipelines import Reader
from tfdml.models import build_embedder, first_levels
from tfdml.serving import export_model

SIZE = (16, 12, 3)


def test_every_signature_gives_the_numbers_of_keras(served, contents, tmp_path, rng):
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
    whole = build_embedder("small_cnn", 4, input_shape=SIZE, levels=3, mirror=True)
    version, expected = exported(first_levels(whole, 2), SIZE, contents, tmp_path)
    assert expected.shape == (5, 8)
    jobs = [
        *((served.folder / "2", name, *job) for name, job in learned.items()),
        *((served.folder / "1", name, *job) for name, job in plain.items()),
        (version, "serving_default", encoded, expected),
    ]
    loaded = {path: sessions.Session(path) for path, *_ in jobs}
    for version, names in (("2", {*learned}), ("1", {*learned} - {"score_pairs", "score_matrix"})):
        found = loaded[served.folder / version].signatures
        assert {name for name in found if not name.startswith("__")} == names
    for path, name, inputs, expected in jobs:
        (values,) = loaded[path].run(name, inputs).values()
        said = f"{name} of {path}"
        assert np.ptp(expected) > 0, said
        np.testing.assert_allclose(values, expected, atol=1e-5, rtol=1e-5, err_msg=said)


def test_what_is_optional_is_answered(complete, complete_signatures, contents):
    images = [*contents, b"", b"GIF89a"]
    outputs = sessions.Session(complete).run("neighbours", {"image_bytes": images})
    expected = complete_signatures["neighbours"](image_bytes=tf.constant(images))
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
    found = sessions.Session(version).run("serving_default", {"image_bytes": contents})
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(found["embedding"], expected, atol=1e-5)


def test_refusals_leave_the_session_as_it_was(served, contents):
    session = sessions.Session(served.folder / "2")
    with pytest.raises(sessions.RejectedError, match="is not a JPEG") as rejected:
        session.run("serving_default", {"image_bytes": [contents[0], b"junk"]})
    assert rejected.value.code == "INVALID_ARGUMENT"
    found = session.run("serving_default", {"image_bytes": contents})
    np.testing.assert_allclose(found["embedding"], served.embed(contents), atol=1e-5)
