import sys

import faiss
import numpy as np
import pytest

from tfdml.evaluation import approximate, approximate_recall, recall_at_k

pytestmark = pytest.mark.filterwarnings("ignore:.*have no other row")


@pytest.fixture(autouse=True)
def _one_thread():
    """Several would add rows to a graph in any order."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(threads)


def classes(rng, count, dim=16, noise=0.5):
    """Rows around the centre of their class, and class ids above 2**40, some lonely."""
    labels = rng.integers(0, count // 8, count)
    rows = rng.normal(size=(count // 8, dim))[labels] + noise * rng.normal(size=(count, dim))
    labels = labels + 2**40
    labels[:3] = [-1, 2, 2**62]
    return rows.astype(np.float32), labels


def by_loops(x, labels, k, gallery=None, gallery_labels=None, *, index, parameters, seed):
    """Recalls and overlaps of an index, query by query."""
    own = gallery is None
    gallery, gallery_labels = (x, labels) if own else (gallery, gallery_labels)
    order = np.random.default_rng(seed).permutation(len(gallery))
    built = faiss.index_factory(x.shape[1], index)
    built.train(gallery[order])
    built.add(gallery[order])
    if parameters:
        faiss.ParameterSpace().set_index_parameters(built, parameters)
    recalls, overlaps = dict.fromkeys(k, 0.0), dict.fromkeys(k, 0.0)
    distances = np.square(gallery.astype(np.float64) - x[:, None]).sum(axis=2)
    if own:
        np.fill_diagonal(distances, np.inf)
    borders = np.sort(distances, axis=1) * (1 + 1e-9)
    for q, query in enumerate(x):
        places = built.search(query[None], max(k) + own)[1][0]
        found = [j for j in order[places[places >= 0]] if not (own and j == q)]
        for count in k:
            near = found[:count]
            recalls[count] += any(gallery_labels[near] == labels[q]) / len(x)
            hits = np.count_nonzero(distances[q, near] <= borders[q, count - 1])
            overlaps[count] += hits / count / len(x)
    return recalls, overlaps


@pytest.mark.parametrize(
    ("index", "parameters", "in_gallery", "scale"),
    [
        ("Flat", None, True, 2.0**100),
        ("HNSW4", "efSearch=1", False, 2.0**-100),
        ("IVF16,Flat", None, True, 1),
        ("IVF16,Flat", "nprobe=3", False, 1),
        ("PCA8,IVF8,PQ2x3", "nprobe=2", True, 1),
    ],
)
def test_equals_loops(index, parameters, in_gallery, scale, rng, monkeypatch):
    monkeypatch.setattr(approximate, "_FOUND_AT_ONCE", 7)
    (x, labels), k = classes(rng, 300), (1, 3, 12)
    some = slice(60 if in_gallery else 120)
    gallery = (x[60:], labels[60:]) if in_gallery else ()
    options = {"index": index, "parameters": parameters, "seed": 5}
    recalls, overlaps = by_loops(x[some], labels[some], k, *gallery, **options)
    x = x * np.float32(scale)
    data = x[some], labels[some], k
    named = {"gallery_embeddings": x[60:], "gallery_labels": labels[60:]} if in_gallery else {}
    found = approximate_recall(*data, **named, **options)
    assert found["exact"] == recall_at_k(*data, **named)
    assert 0 < found["exact"][1] < found["exact"][12] < 1
    assert found["approximate"] == pytest.approx(recalls, abs=1e-9)
    assert found["overlap"] == pytest.approx(overlaps, abs=1e-9)
    lost = {count: found["exact"][count] - found["approximate"][count] for count in k}
    assert found["lost"] == lost
    assert all(type(value) is float for value in (*lost.values(), *found["overlap"].values()))


def test_rows_that_are_not_returned_are_not_found(rng):
    """A cell of an inverted file holds fewer rows than are asked for: the rest is -1."""
    x, labels = classes(rng, 64)
    k = (1, 63)
    found = approximate_recall(x, labels, k, index="IVF16,Flat")
    assert found["overlap"][63] < 0.5
    far = np.concatenate([np.full((1, 16), 100, np.float32), x[1:]])  # alone in its cell
    found = approximate_recall(far, np.full(64, 7), k, index="IVF16,Flat")
    assert found["approximate"][63] < 1  # the last row, which -1 would be, is of its class


def test_states_the_cost_which_codes_keep_small(rng):
    data = classes(rng, 300, 32, noise=0.8)
    graph, codes = (approximate_recall(*data, index=index) for index in ("HNSW32", "PQ4x3"))
    assert codes["index_bytes"] < 300 * 32 < 300 * 32 * 4 < graph["index_bytes"]
    assert codes["overlap"][8] < 0.9 < graph["overlap"][8]
    for name in ("build_seconds", "search_seconds", "exact_search_seconds"):
        assert 0 < graph[name] < 60
        assert type(graph[name]) is float
    assert graph["threads"] == 1


def test_names_the_extra_where_faiss_is_missing(rng, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"requires faiss: pip install -e '.\[search\]'"):
        approximate_recall(*classes(rng, 64))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"index": "HNSWx"}, ValueError, r"\(could not parse index string HNSWx\). Received: ind"),
        ({"index": "IVF999,Flat"}, ValueError, r"training points \(64\) should.*rows=64, dim=16"),
        ({"index": "PQ7"}, ValueError, "should be a multiple of the number of subquantizers"),
        ({"parameters": "nprobe=4"}, ValueError, "could not set parameter nprobe"),
        ({"index": "IVF4,Flat", "parameters": "nprobe=0"}, ValueError, "faiss rejects the index"),
        ({"parameters": "efSearch"}, ValueError, r"^faiss rejects the index \(could not interpret"),
        ({"index": 32}, TypeError, "`index` must be a string. Received: index=32"),
        ({"parameters": {"nprobe": 4}}, TypeError, "`parameters` must be a string. Received"),
    ],
)
def test_rejects_bad_options(options, error, message, rng):
    with pytest.raises(error, match=message):
        approximate_recall(*classes(rng, 64), **options)
