"""The signatures of a model, as a server would compute them, before and after it is written."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from image_contents import encode
from PIL import Image
from sessions import Session

from pipelines import Reader
from tfdml.models import build_embedder
from tfdml.serving import ExportOptions, Gallery, ServedModel, export_model

SIZE = (16, 12, 3)  # of the images of `served`
BAD = [b"", b"words"]


@pytest.fixture(scope="module")
def model(served):
    """That of the version with a learned similarity."""
    return served.models[2]


@pytest.fixture(scope="module")
def images():
    """PNG files of several sizes."""
    return [png(side, 2 * side) for side in (12, 30, 7, 20)]


def png(height, width):
    """A file of noise."""
    pixels = np.random.default_rng(height).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return encode(Image.fromarray(pixels), "PNG")


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


@pytest.mark.parametrize("counts", [(1, 3), (3, 2)])
def test_rows_without_a_partner_are_rejected(counts, strict, images, rng):
    for name, rows in (("similarity", images), ("score_pairs", rng.normal(size=(3, 8)))):
        sides = [np.asarray(rows)[:count] for count in counts]
        sides = [side.astype("float32") if name == "score_pairs" else side for side in sides]
        with pytest.raises(tf.errors.InvalidArgumentError, match="same number of rows"):
            call(strict[name], *sides)


def functional(shape, outputs):
    inputs = keras.Input(shape)
    return keras.Model(inputs, outputs(inputs))


def test_half_precision_serves_float32(rng):
    half = keras.layers.Dense(4, dtype="mixed_float16")
    scaled = keras.Sequential([keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), half])
    embedder = functional(SIZE, scaled)
    assert embedder.output.dtype == "float16"
    images = rng.uniform(0, 255, (2, *SIZE)).astype("float32")
    found = call(ServedModel(embedder, Reader(SIZE)).signatures["embed_images"], images)
    assert found["embedding"].dtype == np.float32
    np.testing.assert_allclose(found["embedding"], embedder(images), atol=1e-2)


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


def test_a_folder_that_is_no_version_is_warned_of(model, tmp_path, monkeypatch):
    monkeypatch.setattr(ServedModel, "write", lambda self, path, **_: path)
    with pytest.warns(UserWarning, match="folders that are numbers, not .*model"):
        assert export_model(model, tmp_path / "model") == tmp_path / "model"


def test_neighbours_are_found_in_a_session(complete, complete_signatures, contents):
    found = Session(complete).run("neighbours", {"image_bytes": contents})
    expected = complete_signatures["neighbours"](image_bytes=tf.constant(contents))
    np.testing.assert_array_equal(found["ids"], expected["ids"])


def test_an_existing_version_is_not_written_again(served):
    with pytest.raises(FileExistsError, match="never overwritten"):
        export_model(served.models[2], served.folder / "2")


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


def test_rounded_weights_are_all_that_is_written(complete, complete_signatures, served, contents):
    def size(path):
        return sum(file.stat().st_size for file in (path / "variables").iterdir())

    assert size(complete) < 0.4 * size(served.folder / "1")
    assert (complete / "assets.extra" / "recipe.yaml").read_text() == "loss: lifted\n"
    found = complete_signatures["serving_default"](image_bytes=tf.constant(contents))["embedding"]
    exact = served.embed(contents, version=1)
    np.testing.assert_allclose(found, exact, atol=0.05)  # unit rows, rounded to 8 bits
    assert np.abs(found - exact).max() > 1e-5
    operations = {
        node.op
        for signature in complete_signatures.values()
        for function in signature.graph.as_graph_def().library.function
        for node in function.node_def
    }
    assert "IgnoreErrorsDataset" in operations
    assert not {name for name in operations if "PyFunc" in name or "Generator" in name}
