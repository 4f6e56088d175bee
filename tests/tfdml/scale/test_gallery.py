"""Scores in a collection equal those of the in-memory evaluation of the same rows."""

import numpy as np
import pytest
from stored_collections import write_collection

from tfdml import evaluation
from tfdml.evaluation import retrieval
from tfdml.scale import Gallery, StoredIndex, retrieval_scores_per_query, scores_through_index
from tfdml.scale import collection as reading
from tfdml.scale import gallery as module
from tfdml.scale.indexing import build

pytestmark = pytest.mark.filterwarnings("ignore:.*(have no other row|could not be read)")


def in_memory(collection):
    """Ids, rows and (m,) integer labels; images without a label are each of their own class."""
    shards = [collection.shard(i) for i in range(collection.shards)]
    ids, rows = (np.concatenate(parts) for parts in zip(*shards, strict=True))
    listed = collection.columns("label")["label"].to_pylist()
    texts = [listed[i] for i in ids]
    names = [text or f"none {i}" for i, text in enumerate(texts)]
    return ids, rows, texts, np.unique(names, return_inverse=True)[1]


@pytest.mark.parametrize(
    ("metrics", "small"),
    [(None, True), ("recall", True), (("recall", "map@r", "r_precision"), False)],
)
def test_equals_the_evaluation_in_memory(clustered, metrics, small, monkeypatch):
    if small:
        monkeypatch.setattr(reading, "_CHUNK_BYTES", 16 * 4 * 50)
        monkeypatch.setattr(retrieval, "_MOST_PAIRS", 1000)
    ids, rows, texts, labels = in_memory(clustered)
    gallery, counts = Gallery(clustered), (1, 10, 596)
    some = np.flatnonzero([text is not None for text in texts])[::3]
    asked = rows[some], [texts[i] for i in some]
    found = retrieval_scores_per_query(gallery, *asked, counts, metrics=metrics, own=ids[some])
    expected = evaluation.retrieval_scores_per_query(rows, labels, counts, metrics=metrics)
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name][some], err_msg=name)
    assert 0.2 < found["recall@1"].mean() < 1


def test_an_exact_index_loses_nothing_and_another_says_what(clustered):
    ids, rows, texts, _ = in_memory(clustered)
    gallery = Gallery(clustered)
    some = np.flatnonzero([text is not None for text in texts])[::5]
    given = rows[some], [texts[i] for i in some], (1, 10)
    options = {"metrics": ("recall", "map@r", "r_precision"), "own": ids[some]}
    exact = retrieval_scores_per_query(gallery, *given, **options)
    build(clustered, "Flat")
    found, compared = scores_through_index(gallery, StoredIndex(clustered), *given, **options)
    for name in exact:
        np.testing.assert_allclose(found[name], exact[name], atol=1e-12, err_msg=name)
    assert set(compared["lost"].values()) == {0.0}
    build(clustered, "IVF64,PQ2x4", parameters="nprobe=1", overwrite=True)  # of 40 classes
    options |= {"queries": 50, "seed": 1}
    found, compared = scores_through_index(gallery, StoredIndex(clustered), *given, **options)
    assert compared["queries"] == 50
    assert compared["lost"]["map@r"] > 0.05
    for name in exact:
        assert found[name].mean() <= exact[name].mean()
        lost = compared["exact"][name] - compared["approximate"][name]
        assert compared["lost"][name] == lost


def test_an_image_that_is_listed_twice_does_not_find_itself(tmp_path, rng):
    rows, names = rng.normal(size=(40, 6)).astype(np.float32), [f"c{i % 8}" for i in range(40)]
    once = Gallery(write_collection(tmp_path / "once", rows, names))
    repeated = np.repeat(rows, 2, axis=0), np.repeat(names, 2)
    twice = Gallery(write_collection(tmp_path / "twice", *repeated))
    own, metrics = np.arange(40), ("recall", "map@r")
    expected = retrieval_scores_per_query(once, rows, names, 1, metrics=metrics, own=own)
    own = 2 * own[:, None] + [0, 1]
    found = retrieval_scores_per_query(twice, rows, names, 1, metrics=metrics, own=own)
    np.testing.assert_array_equal(found["recall@1"], expected["recall@1"])
    assert 0 < expected["recall@1"].mean() < 0.5
    build(twice.collection, "Flat")
    index = StoredIndex(twice.collection)
    through, _ = scores_through_index(twice, index, rows, names, 1, metrics=metrics, own=own)
    for name in found:
        np.testing.assert_allclose(through[name], found[name], atol=1e-12, err_msg=name)


def test_rejects_what_cannot_be_evaluated(tmp_path, clustered, monkeypatch):
    gallery, rows = Gallery(clustered), np.ones((2, 16), np.float32)
    names = ["class 1", "class 2"]
    with pytest.raises(ValueError, match=r"same dim\. Received: dim=8, gallery_dim=16"):
        retrieval_scores_per_query(gallery, rows[:, :8], names, 1)
    with pytest.raises(ValueError, match="gallery_size=597"):
        retrieval_scores_per_query(gallery, rows, names, 601)
    with pytest.raises(TypeError, match="`labels` must be texts"):
        retrieval_scores_per_query(gallery, rows, ["class 1", None], 1)
    with pytest.raises(ValueError, match="`labels` and `embeddings` must have the same batch size"):
        retrieval_scores_per_query(gallery, rows, names[:1], 1)
    with pytest.raises(ValueError, match="must not rank the whole gallery"):
        scores_through_index(gallery, None, rows, names, 1, metrics="map")
    monkeypatch.setattr(module, "MOST_FOUND", 5)
    with pytest.raises(ValueError, match=r"at most 5 images. Received: needed="):
        scores_through_index(gallery, None, rows, names, 1)
    unlabelled = write_collection(tmp_path / "none", rows, [None, None])
    with pytest.raises(ValueError, match=r"must have labels to evaluate by\. Received: images=2"):
        Gallery(unlabelled)
    none = write_collection(tmp_path / "empty", rows[:0], [])
    with pytest.raises(ValueError, match=r"empty must have images\. Received: images=0"):
        Gallery(none)
