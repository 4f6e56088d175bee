import io

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from pipelines import images as preprocessing
from tfdml import EmbeddingModel, losses
from tfdml.models import build_embedder
from tfdml.serving import ExportOptions, Gallery, ServedModel, export_model

SIZE = (16, 12, 3)


@pytest.fixture(scope="module")
def embedder():
    keras.utils.set_random_seed(0)  # what 8 bits lose depends on the weights
    return build_embedder("small_cnn", 8, input_shape=SIZE)


@pytest.fixture(scope="module")
def version(embedder, tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "model" / "1"
    read_image = preprocessing.reader(SIZE)
    assert (
        export_model(embedder, path, read_image, assets={"recipe.yaml": "loss: lifted\n"}) == path
    )
    return path


@pytest.fixture(scope="module")
def learned(embedder, tmp_path_factory):
    """A model that learns a similarity, of raw rows that its loss scales, and its version."""
    raw = build_embedder("small_cnn", 8, input_shape=SIZE, normalize=False)
    model = EmbeddingModel(raw)
    model.compile(loss=losses.get("pddm", similarity={"seed": 0}))
    path = tmp_path_factory.mktemp("learned") / "1"
    return model, export_model(raw, path, preprocessing.reader(SIZE), loss=model.loss)


@pytest.fixture(scope="module")
def signatures(version):
    return tf.saved_model.load(str(version)).signatures


@pytest.fixture(scope="module")
def learned_signatures(learned):
    return tf.saved_model.load(str(learned[1])).signatures


def encoded(rng, kind, shape):
    buffer = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, shape).astype("uint8")).save(buffer, kind)
    return buffer.getvalue()


def test_serves_the_numbers_of_the_model_from_encoded_images(signatures, embedder, rng):
    contents = [encoded(rng, "PNG", (30, 20, 3)), encoded(rng, "JPEG", (17, 40))]
    read = [preprocessing.reader(SIZE)(tf.constant(content)) for content in contents]
    expected = embedder(tf.stack(read))
    served = signatures["serving_default"](image_bytes=tf.constant(contents))["embedding"]
    np.testing.assert_allclose(served, expected, atol=1e-6)


def test_embeds_images_as_the_model_does(signatures, embedder, rng):
    images = rng.uniform(0, 255, (3, *SIZE)).astype("float32")
    found = signatures["embed_images"](images=tf.constant(images))["embedding"]
    np.testing.assert_allclose(found, embedder(images), atol=1e-6)


def rows_of(rng, *counts):
    return [rng.normal(size=(count, 8)).astype("float32") for count in counts]


def test_serves_the_similarity_of_encoded_images(learned, learned_signatures, rng):
    model, serve = learned[0], learned_signatures["similarity"]
    contents = [encoded(rng, "PNG", (16, 12, 3)) for _ in range(4)]
    images = np.stack([preprocessing.reader(SIZE)(content) for content in contents])
    served = serve(image_bytes_a=tf.constant(contents), image_bytes_b=tf.constant(contents[::-1]))[
        "similarity"
    ]
    expected = model.similarity(model.embed(images), model.embed(images[::-1].copy()))
    np.testing.assert_allclose(served, expected, atol=1e-5)
    np.testing.assert_allclose(served, served[::-1], atol=1e-6)
    assert np.ptp(expected) > 1e-3


def test_serves_the_cosine_where_nothing_was_learned(signatures, embedder, rng):
    contents = [encoded(rng, "PNG", (16, 12, 3)) for _ in range(3)]
    images = np.stack([preprocessing.reader(SIZE)(content) for content in contents])
    assert set(signatures) == {"serving_default", "embed_images", "read_images", "similarity"}
    served = signatures["similarity"](
        image_bytes_a=tf.constant(contents), image_bytes_b=tf.constant(contents[::-1])
    )["similarity"]
    model = EmbeddingModel(embedder)
    expected = model.similarity(model.embed(images), model.embed(images[::-1].copy()))
    np.testing.assert_allclose(served, expected, atol=1e-6)


def test_a_loss_that_learned_nothing_serves_the_cosine(embedder):
    served = ServedModel(embedder, preprocessing.reader(SIZE), losses.get("quadruplet"))
    assert "score_matrix" not in served.signatures


@pytest.mark.parametrize("counts", [(1, 3), (3, 1), (3, 2)])
def test_rows_without_a_partner_are_refused(counts, learned_signatures, rng):
    contents = [encoded(rng, "PNG", (16, 12, 3)) for _ in range(3)]
    images = [tf.constant(contents[:count]) for count in counts]
    a, b = (tf.constant(rows) for rows in rows_of(rng, *counts))
    signatures = learned_signatures
    with pytest.raises(tf.errors.InvalidArgumentError, match="a and b must have as many rows"):
        signatures["similarity"](image_bytes_a=images[0], image_bytes_b=images[1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="a and b must have as many rows"):
        signatures["score_pairs"](embeddings_a=a, embeddings_b=b)


def test_scores_pairs_and_all_pairs_of_embeddings(learned, learned_signatures, rng):
    model, signatures = learned[0], learned_signatures
    a, b = rows_of(rng, 90, 120)  # 10,800 pairs, more than the layer scores at once
    score = signatures["score_matrix"]
    scores = score(embeddings_a=tf.constant(a), embeddings_b=tf.constant(b))["similarity"]
    expected = model.similarity(np.repeat(a, 120, axis=0), np.tile(b, (90, 1)))
    np.testing.assert_allclose(scores, expected.reshape(90, 120), atol=1e-5)
    score = signatures["score_pairs"]
    scores = score(embeddings_a=tf.constant(a), embeddings_b=tf.constant(b[:90]))["similarity"]
    np.testing.assert_allclose(scores, model.similarity(a, b[:90]), atol=1e-5)


def test_carries_its_assets(version):
    assert (version / "assets.extra" / "recipe.yaml").read_text() == "loss: lifted\n"


def test_never_overwrites_a_version(version, embedder):
    before = (version / "saved_model.pb").read_bytes()
    with pytest.raises(FileExistsError, match="A version is never overwritten: choose a new one"):
        export_model(embedder, version, preprocessing.reader(SIZE))
    assert (version / "saved_model.pb").read_bytes() == before


def test_a_failed_export_leaves_nothing(embedder, tmp_path):
    assets = {"a folder that is missing/file": ""}
    with pytest.raises(FileNotFoundError, match="that is missing"):
        export_model(embedder, tmp_path / "model" / "1", preprocessing.reader(SIZE), assets=assets)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def complete(embedder, tmp_path_factory):
    """A version with all that is optional, of small files."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 8))
    return export_model(
        embedder,
        tmp_path_factory.mktemp("complete") / "1",
        preprocessing.reader(SIZE),
        options=ExportOptions(precision="int8", on_bad_image="nan", licence="MIT"),
        classes=Gallery(["x", "y", "z"], rows),
        gallery=Gallery(["1.png", "2.png", "3.png"], rows, ["x", "y", "y"]),
        top=2,
        metadata={"recipe": {"loss": "lifted"}, "trained_classes": ["é", "b"]},
    )


def test_what_is_optional_is_served_after_loading(complete, embedder, rng):
    signatures = tf.saved_model.load(str(complete)).signatures
    contents = tf.constant([encoded(rng, "PNG", (30, 20, 3)), b"", encoded(rng, "JPEG", (9, 9))])
    served = signatures["serving_default"](image_bytes=contents)
    assert served["valid"].numpy().tolist() == [True, False, True]
    exact = embedder(signatures["read_images"](image_bytes=contents)["images"])
    # Of unit rows, rounded to 8 bits.
    np.testing.assert_allclose(served["embedding"], exact, atol=0.05)
    assert np.nanmax(np.abs(served["embedding"] - exact)) > 1e-5
    found = signatures["neighbours"](image_bytes=contents)
    assert found["ids"].shape == found["classes"].shape == found["distances"].shape == (3, 2)
    found = signatures["classify"](image_bytes=contents)
    assert found["classes"][0, 0].numpy() in (b"x", b"y", b"z")


def test_a_session_answers_as_the_functions_do(complete, rng):
    # What TF Serving runs, here with the fewest threads that it could have.
    contents = [encoded(rng, "PNG", (30, 20, 3)), b"", encoded(rng, "JPEG", (9, 9))] * 9
    config = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=1, intra_op_parallelism_threads=1, use_per_session_threads=True
    )
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], str(complete))
        signature = meta_graph.signature_def["serving_default"]
        outputs = {name: tensor.name for name, tensor in signature.outputs.items()}
        found = session.run(outputs, {signature.inputs["image_bytes"].name: contents})
        functions = meta_graph.graph_def.library.function
        ops = {node.op for function in functions for node in function.node_def}
    assert "IgnoreErrorsDataset" in ops
    assert not {op for op in ops if "PyFunc" in op or "Generator" in op}
    assert found["valid"].tolist() == [True, False, True] * 9
    assert np.isfinite(found["embedding"]).all(axis=1).tolist() == [True, False, True] * 9


def test_rounded_weights_are_all_that_is_written(complete, version):
    def size(path):
        return sum(file.stat().st_size for file in (path / "variables").iterdir())

    assert size(complete) < 0.4 * size(version)
