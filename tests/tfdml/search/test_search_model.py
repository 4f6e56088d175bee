import shutil

import numpy as np
import pytest
import tensorflow as tf
from image_contents import encode
from PIL import Image

from pipelines import Reader
from tfdml.search.search_model import SearchModel
from tfdml.serving.exported import fingerprint

SIZE = (16, 12, 3)  # of the images of `versions`


@pytest.fixture(scope="module")
def opened(versions):
    return {name: SearchModel(path) for name, (_, path) in versions.items()}


@pytest.mark.parametrize(("name", "radius"), [("plain", pytest.approx(1)), ("learned", None)])
def test_embeds_as_the_model_does(name, radius, versions, opened, rng):
    shapes = {"PNG": (16, 12), "BMP": (30, 20), "WEBP": (12, 16)}
    pictures = [
        encode(Image.fromarray(rng.integers(0, 256, (*shape, 3)).astype(np.uint8)), kind)
        for kind, shape in shapes.items()
    ]
    images = np.stack([Reader(SIZE)(content) for content in pictures])
    rows = [opened[name].embed_picture(picture) for picture in pictures]
    np.testing.assert_allclose(rows, versions[name][0].embed(images), atol=1e-5)
    assert (opened[name].dim, opened[name].radius) == (8, radius)


def test_scores_as_the_learned_similarity_does(versions, opened, rng, monkeypatch):
    model, query = opened["learned"], rng.normal(size=8).astype(np.float32)
    rows = rng.normal(size=(40, 8)).astype(np.float32)
    expected = versions["learned"][0].similarity(np.tile(query, (40, 1)), rows)
    np.testing.assert_allclose(model.score(query, rows), expected, atol=1e-5)

    def broken(embeddings_a, embeddings_b):
        return {"similarity": tf.constant([1.0, np.nan])}

    monkeypatch.setattr(model, "_signatures", {"score_pairs": broken})
    with pytest.raises(ValueError, match="similarity must be finite"):
        model.score(np.ones(8, np.float32), np.ones((2, 8), np.float32))


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
