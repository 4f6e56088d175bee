"""A model of one's own, exported without the programs."""

import io

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from pipelines import Reader
from tfdml import EmbeddingModel, losses
from tfdml.models import build_embedder
from tfdml.serving import export_model

SIZE = (16, 12, 3)


def encoded(rng, kind):
    buffer = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (30, 20, 3)).astype("uint8")).save(buffer, kind)
    return buffer.getvalue()


def functional(shape, outputs):
    inputs = keras.Input(shape)
    return keras.Model(inputs, outputs(inputs))


def signatures_of(model, folder):
    return tf.saved_model.load(str(export_model(model, folder / "mine" / "1"))).signatures


def test_an_embedding_model_is_served_with_its_similarity_and_reads_as_the_pipelines(tmp_path, rng):
    model = EmbeddingModel(build_embedder("small_cnn", 4, input_shape=SIZE, normalize=False))
    model.compile(loss=losses.get("pddm", similarity={"seed": 0}))
    signatures = signatures_of(model, tmp_path)
    contents = [encoded(rng, kind) for kind in ("JPEG", "PNG", "GIF", "BMP")]
    rows = model.embed(np.stack([Reader(SIZE)(content) for content in contents]))
    found = signatures["serving_default"](image_bytes=tf.constant(contents))["embedding"]
    np.testing.assert_allclose(found, rows, atol=1e-4)
    pairs = {"embeddings_a": tf.constant(rows), "embeddings_b": tf.constant(rows[::-1])}
    found = signatures["score_pairs"](**pairs)["similarity"]
    np.testing.assert_allclose(found, model.similarity(rows, rows[::-1]), atol=1e-4)


def test_half_precision_serves_float32(tmp_path, rng):
    half = keras.layers.Dense(4, dtype="mixed_float16")
    scaled = keras.Sequential([keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), half])
    embedder = functional(SIZE, scaled)
    assert embedder.output.dtype == "float16"
    signatures = signatures_of(embedder, tmp_path)
    images = rng.uniform(0, 255, (2, *SIZE)).astype("float32")
    found = signatures["embed_images"](images=tf.constant(images))["embedding"]
    assert found.dtype == tf.float32
    np.testing.assert_allclose(found, embedder(images), atol=1e-2)
    assert signatures["serving_default"].structured_outputs["embedding"].dtype == tf.float32


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        ("small_cnn", TypeError, "`model` must be .* Received: model='small_cnn'"),
        (keras.Model(), ValueError, "fixed size.* Received: input_shape=None"),
        (
            functional((None, None, 3), keras.layers.GlobalAveragePooling2D()),
            ValueError,
            r"fixed size.* Received: input_shape=\(None, None, None, 3\)",
        ),
        (
            functional(SIZE, keras.layers.Conv2D(2, 3)),
            ValueError,
            r"\(batch, dim\).* output_shape=\(None, 14, 10, 2\)",
        ),
    ],
    ids=["name", "unbuilt", "any size", "maps"],
)
def test_what_cannot_be_served_is_rejected(model, kind, message, tmp_path):
    with pytest.raises(kind, match=message):
        export_model(model, tmp_path / "mine" / "1")
    assert not list(tmp_path.iterdir())
