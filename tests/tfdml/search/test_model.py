import io
import shutil

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from pipelines import Reader
from tfdml.search.images import RejectedError
from tfdml.search.model import SearchModel
from tfdml.serving.exported import fingerprint

SIZE = (16, 12, 3)  # of the images of `versions`


@pytest.fixture(scope="module")
def opened(versions):
    return {name: SearchModel(path) for name, (_, path) in versions.items()}


@pytest.fixture
def pictures(rng):
    """Pictures of noise, of several sizes and types, as pixels and as bytes."""
    shapes = {"PNG": (16, 12), "BMP": (30, 20), "WEBP": (12, 16)}
    contents = []
    for kind, shape in shapes.items():
        file = io.BytesIO()
        pixels = rng.integers(0, 256, (*shape, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(file, kind)
        contents.append(file.getvalue())
    return contents


@pytest.mark.parametrize("name", ["plain", "learned"])
def test_embeds_as_the_model_does(name, versions, opened, pictures):
    images = np.stack([Reader(SIZE)(content) for content in pictures])
    rows = opened[name].embed(pictures)
    np.testing.assert_allclose(rows, versions[name][0].embed(images), atol=1e-5)
    assert opened[name].dim == 8


def test_states_the_length_of_the_embeddings(opened):
    assert opened["plain"].radius == pytest.approx(1, abs=1e-5)
    assert opened["learned"].radius is None


def test_one_that_cannot_be_read_does_not_keep_the_others(opened, pictures):
    broken = pictures[0][:100]
    rows = opened["plain"].embed([pictures[0], broken, pictures[1]])
    np.testing.assert_allclose(rows[::2], opened["plain"].embed(pictures[:2]), atol=1e-6)
    assert isinstance(rows[1], RejectedError)
    assert "cannot read the picture (it is damaged" in str(rows[1])


def test_reports_an_unreadable_picture_also_of_a_model_that_gives_nan(complete, pictures):
    row, refusal = SearchModel(complete).embed([pictures[0], pictures[0][:100]])
    assert np.isfinite(row).all()
    assert "cannot read the picture (it is damaged" in str(refusal)


def test_scores_as_the_learned_similarity_does(versions, opened, rng):
    model = versions["learned"][0]
    query = rng.normal(size=8).astype(np.float32)
    rows = rng.normal(size=(40, 8)).astype(np.float32)
    scores = opened["learned"].score(query, rows)
    np.testing.assert_allclose(scores, model.similarity(np.tile(query, (40, 1)), rows), atol=1e-5)
    assert np.ptp(scores) > 1e-3
    assert (opened["plain"].learned, opened["learned"].learned) == (False, True)


def test_scores_that_are_not_finite_are_an_error(opened, monkeypatch):
    def broken(embeddings_a, embeddings_b):
        return {"similarity": tf.constant([1.0, np.nan])}

    monkeypatch.setattr(opened["learned"], "_signatures", {"score_pairs": broken})
    with pytest.raises(ValueError, match="similarity must be finite"):
        opened["learned"].score(np.ones(8, np.float32), np.ones((2, 8), np.float32))


def test_an_embedding_that_is_not_finite_is_left_out(opened, pictures, monkeypatch):
    def broken(image_bytes):
        return {"embedding": tf.constant([[1.0, 2.0], [np.inf, 0.0]])}

    monkeypatch.setattr(opened["plain"], "_signatures", {"serving_default": broken})
    rows = opened["plain"].embed(pictures[:2])
    assert rows[0].tolist() == [1.0, 2.0]
    assert "no finite embedding" in str(rows[1])


def test_the_fingerprint_is_of_the_network_wherever_it_lies(versions, tmp_path):
    plain, learned = (versions[name][1] for name in ("plain", "learned"))
    copy = shutil.copytree(plain, tmp_path / "elsewhere")
    assert fingerprint(copy) == fingerprint(plain) != fingerprint(learned)
    (copy / "assets.extra").mkdir(exist_ok=True)
    (copy / "assets.extra" / "metadata.json").write_text('{"licence": "MIT"}')
    assert fingerprint(copy) == fingerprint(plain)
    weights = next((copy / "variables").glob("*.data*"))
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    assert fingerprint(copy) != fingerprint(plain)


def test_rejects_a_model_that_takes_no_encoded_images(tmp_path):
    class Other(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((None, 4, 4, 3), tf.float32, "images")])
        def embed(self, images):
            return {"embedding": tf.reduce_mean(images, axis=(1, 2))}

    other = Other()
    tf.saved_model.save(other, str(tmp_path), signatures={"embed_images": other.embed})
    with pytest.raises(ValueError, match=r"serving_default of .* must take `image_bytes`"):
        SearchModel(tmp_path)
