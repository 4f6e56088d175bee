"""Batches with bad images, classes and a gallery, as a server would compute them."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from pipelines import Reader
from tfdml import EmbeddingModel, losses
from tfdml.models import build_embedder
from tfdml.serving import ExportOptions, Gallery, ServedModel

SIZE = (12, 10, 3)
BAD = [b"", b"words"]


@pytest.fixture(scope="module")
def model():
    model = EmbeddingModel(build_embedder("small_cnn", 8, input_shape=SIZE, normalize=False))
    model.compile(loss=losses.get("pddm", similarity={"seed": 0}))
    return model


@pytest.fixture(scope="module")
def images():
    """PNG files of several sizes."""
    return [png(side, 2 * side) for side in (12, 30, 7, 20)]


def png(height, width):
    """A PNG file of noise."""
    rng, stream = np.random.default_rng(height), io.BytesIO()
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture(scope="module")
def embeddings(model, images):
    return model.embed(np.stack([Reader(SIZE)(content) for content in images]))


@pytest.fixture(scope="module")
def gallery(embeddings):
    return Gallery([f"{row}.png" for row in range(4)], embeddings, ["a", "b", "a", "c"])


@pytest.fixture(scope="module")
def tolerant(model, gallery):
    """Signatures that give NaN for what cannot be read."""
    options = ExportOptions(on_bad_image="nan")
    served = ServedModel(model.embedder, Reader(SIZE), model.loss, options=options)
    served.add_gallery(gallery, top=2)
    served.add_classes(Gallery(["x", "y", "z"], gallery.embeddings[:3]), top=5)
    return served.signatures


@pytest.fixture(scope="module")
def strict_model(model):
    options = ExportOptions(max_pixels=60 * 30)  # of the largest of `images`
    return ServedModel(model.embedder, Reader(SIZE), model.loss, options=options)


@pytest.fixture(scope="module")
def strict(strict_model):
    return strict_model.signatures


def call(function, *rows):
    return {name: value.numpy() for name, value in function(*map(tf.constant, rows)).items()}


def test_a_bad_image_gives_nan_and_the_others_their_numbers(tolerant, images, embeddings):
    batch = [images[0], BAD[0], images[1], images[2], BAD[1], images[3]]
    found = call(tolerant["serving_default"], batch)
    assert found["valid"].tolist() == [True, False, True, True, False, True]
    np.testing.assert_allclose(found["embedding"][found["valid"]], embeddings, atol=1e-5)
    assert np.isnan(found["embedding"][~found["valid"]]).all()
    read = call(tolerant["read_images"], batch)
    np.testing.assert_array_equal(read["images"][0], Reader(SIZE)(images[0]))
    assert np.isnan(read["images"][[1, 4]]).all()
    assert read["valid"].tolist() == found["valid"].tolist()


def test_a_pair_with_a_bad_image_has_no_similarity(tolerant, strict, images):
    found = call(tolerant["similarity"], [images[0], BAD[0], images[2]], [images[1]] * 2 + BAD[:1])
    assert found["valid"].tolist() == [True, False, False]
    assert np.isnan(found["similarity"]).tolist() == [False, True, True]
    expected = call(strict["similarity"], images[:1], images[1:2])["similarity"]
    np.testing.assert_allclose(found["similarity"][0], expected[0], atol=1e-5)


def test_an_error_names_the_bad_images_of_a_batch(strict, images):
    for name in ("serving_default", "read_images"):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=r"image_bytes\[1\] is empty; image_bytes\[3\] is no",
        ):
            call(strict[name], [images[0], BAD[0], images[1], BAD[1]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"image_bytes_b\[1\] is empty"):
        call(strict["similarity"], images[:2], [images[0], b""])


def test_an_image_of_more_pixels_than_asked_for_is_rejected(strict, images):
    assert call(strict["read_images"], images[:2])["images"].shape == (2, *SIZE)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[1\] has 60 x 31 pixels"):
        call(strict["read_images"], [images[0], png(31, 60)])


def test_valid_is_stated_where_bad_images_are_taken_alone(strict, tolerant):
    for name in ("serving_default", "read_images", "similarity"):
        assert "valid" not in strict[name].get_concrete_function().structured_outputs
        assert "valid" in tolerant[name].get_concrete_function().structured_outputs
    for name in ("embed_images", "score_pairs", "score_matrix"):
        assert "valid" not in tolerant[name].get_concrete_function().structured_outputs


def test_neighbours_are_those_of_the_gallery(tolerant, images, embeddings):
    found = call(tolerant["neighbours"], [*images, BAD[0]])
    distances = np.linalg.norm(embeddings[:, None] - embeddings[None], axis=2)
    order = np.argsort(distances, axis=1)[:, :2]
    assert found["ids"][:4].tolist() == [[b"%d.png" % row for row in rows] for rows in order]
    assert found["ids"][:4, 0].tolist() == [b"0.png", b"1.png", b"2.png", b"3.png"]
    names = np.array([b"a", b"b", b"a", b"c"])
    np.testing.assert_array_equal(found["classes"][:4], names[order])
    expected = np.take_along_axis(distances, order, axis=1)
    np.testing.assert_allclose(found["distances"][:4], expected, atol=1e-5)
    assert found["valid"].tolist() == [True] * 4 + [False]
    assert found["ids"][4].tolist() == found["classes"][4].tolist() == [b"", b""]
    assert np.isnan(found["distances"][4]).all()


def test_classes_are_those_of_the_nearest_means_and_at_most_as_many(tolerant, images, embeddings):
    found = call(tolerant["classify"], images)
    distances = np.linalg.norm(embeddings[:, None] - embeddings[None, :3], axis=2)
    order = np.argsort(distances, axis=1)
    np.testing.assert_array_equal(found["classes"], np.array([b"x", b"y", b"z"])[order])
    assert set(found) == {"classes", "distances", "valid"}


def test_rejects_a_gallery_of_another_model(strict_model):
    with pytest.raises(ValueError, match=r"Received: dim=8, embeddings=7"):
        strict_model.add_gallery(Gallery(["a"], np.ones((1, 7))), top=5)
    with pytest.raises(ValueError, match=r"`top` .*Received: top=0"):
        strict_model.add_classes(Gallery(["a"], np.ones((1, 8))), top=0)


def test_files_are_embedded_and_a_bad_one_is_named(strict_model, images, embeddings, tmp_path):
    paths = []
    for row, content in enumerate(images * 9):  # more than a batch
        paths.append(tmp_path / f"{row}.png")
        paths[-1].write_bytes(content)
    np.testing.assert_allclose(
        strict_model.embed_files(paths), np.tile(embeddings, (9, 1)), atol=1e-5
    )
    paths[34].write_bytes(images[0][:-9])
    with pytest.raises(ValueError, match=r"34\.png is damaged"):
        strict_model.embed_files(paths)
