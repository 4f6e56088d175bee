import shutil

import numpy as np
import pytest
import tensorflow as tf
from image_contents import encode
from PIL import Image

from tfdml.search.folder_search import FolderSearch
from tfdml.search.search_model import SearchModel
from tfdml.serving.exported import fingerprint


@pytest.fixture(scope="module")
def opened(served):
    """A model whose embeddings have norm 1, and one of raw rows that learned a similarity."""
    return {number: SearchModel(served.folder / str(number)) for number in (1, 2)}


@pytest.mark.parametrize(("number", "radius"), [(1, pytest.approx(1)), (2, None)])
def test_embeds_as_the_model_does(number, radius, served, opened, rng):
    shapes = {"PNG": (16, 12), "BMP": (30, 20), "WEBP": (12, 16)}
    pictures = [
        encode(Image.fromarray(rng.integers(0, 256, (*shape, 3)).astype(np.uint8)), kind)
        for kind, shape in shapes.items()
    ]
    rows = [opened[number].embed_picture(picture) for picture in pictures]
    np.testing.assert_allclose(rows, served.embed(pictures, number), atol=1e-5)
    assert (opened[number].dim, opened[number].radius) == (8, radius)


def test_a_folder_is_searched_by_it(opened, folder, index, encoded):
    for number, ranked_by in ((1, "cosine"), (2, "similarity")):
        search = FolderSearch(opened[number], folder, index / str(number))
        assert search.refresh() == (5, 0)
        answer = search.by_picture(encoded((250, 10, 10)), 5)
        assert (answer.ranked_by, len(answer.found)) == (ranked_by, 5)
        same = next(found for found in answer.found if found.entry.name == "red/bright.png")
        assert same.scores["distance"] < 1e-2
        assert (answer.decision is None) == (number == 1)


def test_scores_as_the_learned_similarity_does(served, opened, rng, monkeypatch):
    model, query = opened[2], rng.normal(size=8).astype(np.float32)
    rows = rng.normal(size=(40, 8)).astype(np.float32)
    expected = served.models[2].similarity(np.tile(query, (40, 1)), rows)
    np.testing.assert_allclose(model.score(query, rows), expected, atol=1e-5)

    def broken(embeddings_a, embeddings_b):
        return {"similarity": tf.constant([1.0, np.nan])}

    monkeypatch.setattr(model, "_signatures", {"score_pairs": broken})
    with pytest.raises(ValueError, match="similarity must be finite"):
        model.score(np.ones(8, np.float32), np.ones((2, 8), np.float32))


def test_the_fingerprint_is_of_the_network_wherever_it_lies(served, tmp_path):
    plain, learned = (served.folder / name for name in ("1", "2"))
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
