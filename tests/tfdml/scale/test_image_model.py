import types

import numpy as np
import pytest
import tensorflow as tf

from tfdml.scale.image_model import ImageModel


@pytest.fixture(scope="module")
def model(served):
    return ImageModel(served.folder / "1")


def test_says_why_images_cannot_be_read(model, contents):
    bad = [b"", b"text", contents[1][:-40]]
    given = [contents[0], *bad, contents[2], "there is no such file"]
    rows, problems = model.embed(*model.read(given))
    assert problems == [
        None,
        "it is empty",
        "it is not a JPEG, PNG, GIF, BMP or WebP",
        "it is damaged, cut off, or of a kind that cannot be read",
        None,
        "there is no such file",
    ]
    alone, _ = model.embed(*model.read([given[0], given[4]]))
    np.testing.assert_allclose(rows[[0, 4]], alone, atol=1e-6)


def test_more_unreadable_images_than_an_error_names(model, contents):
    _, problems = model.read([b""] * 25 + [contents[0]] + [b"text"] * 4)
    assert problems == ["it is empty"] * 25 + [None] + [problems[-1]] * 4


def test_a_model_that_rejects_every_image_is_an_error(model, contents, monkeypatch):
    def rejecting(given):
        raise tf.errors.InvalidArgumentError(None, None, "image_bytes[0] is too large")

    monkeypatch.setattr(model, "_read", rejecting)
    with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
        model.read(contents[:1])


def test_a_model_that_returns_nan_for_unreadable_images(model, contents, monkeypatch):
    images = np.full((2, *model.image_shape), np.nan, np.float32)
    outputs = {"images": images, "valid": [False, True]}
    images[1] = 0
    monkeypatch.setattr(model, "_read", lambda _: outputs)
    _, problems = model.embed(*model.read([b"", contents[0]]))
    assert problems == ["it is damaged, too large, or of a kind that cannot be read", None]


def test_rows_that_are_not_finite_are_no_embeddings(model, contents, monkeypatch):
    rows = np.array([[1, np.inf], [1, 0]])
    monkeypatch.setattr(model, "_embed", lambda images: rows)
    _, problems = model.embed(*model.read(contents[:2]))
    assert problems == ["the model gives no finite embedding", None]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("read_images", "has no signature embed_images. It has: read_images"),
        ("embed_images", "must have a signature read_images"),
    ],
)
def test_a_model_of_one_signature_is_rejected(name, message, model, monkeypatch):
    other = types.SimpleNamespace(signatures={name: model._signatures[name]})
    monkeypatch.setattr(tf.saved_model, "load", lambda path: other)
    with pytest.raises(ValueError, match=message):
        ImageModel(model.version)
