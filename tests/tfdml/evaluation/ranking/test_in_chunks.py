"""Ranks in a gallery that is read chunk by chunk equal those in memory, to the last bit."""

import numpy as np
import pytest

from tfdml.evaluation import retrieval_scores_per_query
from tfdml.evaluation.ranking import counting, in_chunks, points
from tfdml.evaluation.ranking.in_chunks import Chunk, ranks_in_chunks
from tfdml.evaluation.ranking.metrics import METRICS, Metrics

pytestmark = pytest.mark.filterwarnings("ignore:.*(have no other row|collapsed)")


def values_in_chunks(queries, classes, gallery, gallery_classes, metrics, size, own=None):
    """{name: (n,) values} of a gallery in chunks of `size` rows, with ids 3, 6, 9, ..."""

    def chunks():
        for first in range(0, len(gallery), size):
            some = slice(first, first + size)
            ids = 3 + 3 * np.arange(len(gallery))[some]
            yield Chunk(ids, gallery[some], gallery_classes[some])

    own = np.full(len(queries), -1) if own is None else own
    own = own.reshape(len(queries), -1)
    ranks, relevant = ranks_in_chunks(queries, classes, chunks, metrics, own)
    return metrics.values(ranks, relevant)


def rows_of(kind, rng, rows=60):
    return {
        "spread": lambda: rng.normal(size=(rows, 6)),
        "grid": lambda: rng.integers(0, 3, (rows, 3)),  # many exact ties
        "duplicates": lambda: np.repeat(rng.normal(size=(rows // 3, 6)), 3, axis=0),
        "far": lambda: rng.normal(size=(rows, 6)) + 1000,
        "tiny": lambda: rng.normal(size=(rows, 6)) * 1e-30,
        "collapsed": lambda: np.full((rows, 4), 0.3),
    }[kind]().astype(np.float32)


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("names", [METRICS, ("recall",), ("recall", "map@r", "r_precision")])
@pytest.mark.parametrize("kind", ["spread", "grid", "duplicates", "far", "tiny", "collapsed"])
def test_equals_ranks_in_memory(kind, names, small, rng, monkeypatch):
    if small:
        monkeypatch.setattr(in_chunks, "_BLOCK_BYTES", 4 * 7 * 3)
        monkeypatch.setattr(counting, "_CHUNK_ROWS", 5)
        monkeypatch.setattr(counting, "_FEW", 2)
        monkeypatch.setattr(counting, "_DENSE", 3)
        monkeypatch.setattr(points, "_CHUNK_ROWS", 5)
    x, classes = rows_of(kind, rng), (9 * rng.random(60) ** 2).astype(int)
    classes[:3] = [100, 101, 102]  # three queries without another row of their class
    counts, metrics = (1, 5, 59), Metrics.of(names, (1, 5, 59), 60)
    expected = retrieval_scores_per_query(x, classes, counts, metrics=names)
    own = 3 + 3 * np.arange(60)
    for size in (7, 60):
        found = values_in_chunks(x, classes, x, classes, metrics, size, own)
        assert found.keys() == expected.keys()
        for name in found:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    gallery = {"gallery_embeddings": x[20:], "gallery_labels": classes[20:]}
    counts, metrics = (1, 5, 40), Metrics.of(names, (1, 5, 40), 40)
    expected = retrieval_scores_per_query(x[:20], classes[:20], counts, metrics=names, **gallery)
    found = values_in_chunks(x[:20], classes[:20], x[20:], classes[20:], metrics, 11)
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def test_a_query_of_another_class_in_the_gallery_is_left_out_too():
    line = np.array([[0.0], [0.0], [1.0]], np.float32)
    metrics = Metrics.of("recall", 1, 2)
    classes = np.array([-1, 5, 5])  # the first row is the query, without a label there
    queries, own = line[:1], np.array([3])
    found = values_in_chunks(queries, np.array([5]), line, classes, metrics, 2, own)
    assert found["recall@1"].tolist() == [1]
    found = values_in_chunks(queries, np.array([5]), line, classes, metrics, 2)
    assert found["recall@1"].tolist() == [0]  # a tie with another class counts against the query


@pytest.mark.parametrize("size", [11, 120])
@pytest.mark.parametrize("kind", ["spread", "grid"])
def test_all_rows_of_a_query_are_left_out(kind, size, rng):
    x, classes, groups = rows_of(kind, rng), rng.integers(0, 9, 60), np.arange(60)
    gallery, gallery_classes = np.concatenate([x, x]), np.tile(classes, 2)
    expected = retrieval_scores_per_query(
        x[:20],
        classes[:20],
        (1, 5),
        gallery_embeddings=gallery,
        gallery_labels=gallery_classes,
        groups=groups[:20],
        gallery_groups=np.tile(groups, 2),
    )
    own = 3 + 3 * np.stack([groups, groups + 60], axis=1)[:20]
    own[:3, 1] = -1, 1, 2  # ids that the gallery has not
    metrics = Metrics.of(None, (1, 5), 120)
    given = x[:20], classes[:20], gallery, gallery_classes, metrics, size
    found = values_in_chunks(*given, own)
    for name in found:
        np.testing.assert_array_equal(found[name][3:], expected[name][3:], err_msg=name)
    assert found["recall@1"][:3].tolist() == [kind == "spread"] * 3  # they find their second row
