import sys

import faiss
import numpy as np
import pytest

from tfdml.evaluation import approximate, approximate_recall, recall_at_k, tiles

pytestmark = pytest.mark.filterwarnings("ignore:.*(have no other row|collapsed)")


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


def by_loops(x, labels, k, index, parameters, seed, gallery=None, gallery_labels=None):
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
    for q, query in enumerate(x):
        places = built.search(query[None], max(k) + own)[1][0]
        found = [int(order[place]) for place in places if place >= 0]
        found = [j for j in found if not (own and j == q)]
        exact = {
            j: float(np.sum((gallery[j].astype(np.float64) - query) ** 2))
            for j in range(len(gallery))
            if not (own and j == q)
        }
        border = sorted(exact.values())
        for count in k:
            near = found[:count]
            recalls[count] += any(gallery_labels[j] == labels[q] for j in near) / len(x)
            hits = sum(exact[j] <= border[count - 1] * (1 + 1e-9) for j in near)
            overlaps[count] += hits / count / len(x)
    return recalls, overlaps


INDEXES = [
    ("Flat", None),
    ("HNSW4", "efSearch=1"),
    ("IVF16,Flat", None),
    ("IVF16,Flat", "nprobe=3"),
    ("PQ4x4", None),
    ("PCA8,IVF8,PQ2x4", "nprobe=2"),
    ("SQ4", None),
]


@pytest.mark.parametrize(("index", "parameters"), INDEXES)
@pytest.mark.parametrize("block", [7, 2**20])
def test_equals_loops(index, parameters, block, rng, monkeypatch):
    monkeypatch.setattr(approximate, "_FOUND_AT_ONCE", block)
    monkeypatch.setattr(tiles, "_CHUNK_ROWS", block)
    (x, labels), k = classes(rng, 120), (1, 3, 12)
    options = {"index": index, "parameters": parameters, "seed": 5}
    found = approximate_recall(x, labels, k, **options)
    recalls, overlaps = by_loops(x, labels, k, **options)
    assert found["exact"] == recall_at_k(x, labels, k)
    assert found["approximate"] == pytest.approx(recalls, abs=1e-9)
    assert found["overlap"] == pytest.approx(overlaps, abs=1e-9)
    lost = {count: found["exact"][count] - found["approximate"][count] for count in k}
    assert found["lost"] == lost
    assert all(type(value) is float for value in (*lost.values(), *found["overlap"].values()))


@pytest.mark.parametrize(("index", "parameters"), INDEXES)
def test_equals_loops_in_a_gallery(index, parameters, rng):
    (x, labels), k = classes(rng, 300), (2, 9)
    data, gallery = (x[:60], labels[:60]), (x[60:], labels[60:])
    options = {"index": index, "parameters": parameters, "seed": 0}
    named = {"gallery_embeddings": gallery[0], "gallery_labels": gallery[1]}
    found = approximate_recall(*data, k, **named, **options)
    recalls, overlaps = by_loops(*data, k, **options, gallery=gallery[0], gallery_labels=gallery[1])
    assert found["exact"] == recall_at_k(*data, k, **named)
    assert found["approximate"] == pytest.approx(recalls, abs=1e-9)
    assert found["overlap"] == pytest.approx(overlaps, abs=1e-9)


@pytest.mark.parametrize(("index", "parameters"), [("Flat", None), ("IVF20,Flat", "nprobe=20")])
@pytest.mark.parametrize("dim", [3, 16, 50])
@pytest.mark.parametrize("scale", [1.0, 1e30, 1e-30])
def test_an_index_that_looks_at_all_loses_nothing(index, parameters, dim, scale, rng):
    x, labels = classes(rng, 1000, dim, noise=1.0)
    options = {"index": index, "parameters": parameters, "k": (1, 2, 10)}
    found = approximate_recall(x * np.float32(scale), labels, **options)
    assert found["lost"] == {1: 0.0, 2: 0.0, 10: 0.0}
    assert found["overlap"] == {1: 1.0, 2: 1.0, 10: 1.0}
    assert 0 < found["exact"][1] < found["exact"][10] < 1


def test_searching_further_loses_less(rng):
    x, labels = classes(rng, 2000, 32, noise=0.8)
    for index, parameters in (
        ("IVF64,Flat", ("nprobe=1", "nprobe=4", "nprobe=64")),
        ("HNSW4", ("efSearch=1", "efSearch=32", "efSearch=300")),
    ):
        found = [approximate_recall(x, labels, index=index, parameters=p) for p in parameters]
        overlaps = [scores["overlap"][8] for scores in found]
        assert overlaps[0] < 0.6 < overlaps[1] < overlaps[2] > 0.9, (index, overlaps)
        lost = [scores["lost"][1] for scores in found]
        assert lost[0] > 0.02 > abs(lost[2]), (index, lost)
        assert len({scores["exact"][1] for scores in found}) == 1


def test_codes_are_small_and_lose_more_than_graphs(rng):
    data = classes(rng, 4000, 32, noise=0.8)
    graph, codes = (approximate_recall(*data, index=index) for index in ("HNSW32", "PQ8x4"))
    assert codes["index_bytes"] < 4000 * 32 < 4000 * 32 * 4 < graph["index_bytes"]
    assert codes["overlap"][8] < 0.9 < graph["overlap"][8]
    assert codes["lost"][1] > 0.02 > abs(graph["lost"][1])


def test_rows_that_are_not_returned_are_not_found(rng):
    """A cell of an inverted file holds fewer rows than are asked for: the rest is -1."""
    x, labels = classes(rng, 64)
    k = (1, 63)
    found = approximate_recall(x, labels, k, index="IVF16,Flat")
    recalls, overlaps = by_loops(x, labels, k, "IVF16,Flat", None, 0)
    assert found["approximate"] == pytest.approx(recalls, abs=1e-9)
    assert found["overlap"] == pytest.approx(overlaps, abs=1e-9)
    assert found["overlap"][63] < 0.5
    far = np.concatenate([np.full((1, 16), 100, np.float32), x[1:]])  # alone in its cell
    found = approximate_recall(far, np.full(64, 7), k, index="IVF16,Flat")
    assert found["exact"] == {1: 1.0, 63: 1.0}
    assert found["approximate"][63] < 1  # the last row, which -1 would be, is of its class


def test_leaves_out_the_query_by_its_number_alone():
    x = np.repeat(np.arange(30, dtype=np.float32)[:, None], 2, axis=0)
    labels = np.repeat(np.arange(30), 2)
    assert approximate_recall(x, labels, k=1, index="Flat")["approximate"] == {1: 1.0}
    labels = np.arange(60) % 30
    assert approximate_recall(x, labels, k=1, index="Flat")["approximate"] == {1: 0.0}


def test_the_seed_moves_the_graph_and_nothing_exact(rng):
    data = classes(rng, 600)
    options = {"index": "HNSW4", "parameters": "efSearch=1"}
    scores = [approximate_recall(*data, **options, seed=seed) for seed in (0, 0, 1)]
    parts = [[one[name] for name in ("exact", "approximate", "overlap")] for one in scores]
    assert parts[0] == parts[1] != parts[2]
    assert parts[0][0] == parts[2][0]


def test_states_the_cost(rng):
    found = approximate_recall(*classes(rng, 600))
    for name in ("build_seconds", "search_seconds", "exact_search_seconds"):
        assert 0 < found[name] < 60
        assert type(found[name]) is float
    assert found["index_bytes"] > 600 * 16 * 4
    assert found["threads"] == 1


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
        ({"parameters": "efSearch"}, ValueError, r"^faiss rejects the index \(could not interpret"),
        ({"index": 32}, TypeError, "`index` must be a string. Received: index=32"),
        ({"parameters": {"nprobe": 4}}, TypeError, "`parameters` must be a string. Received"),
        ({"k": 64}, ValueError, "`k` must not exceed the gallery size"),
        ({"seed": -1}, ValueError, "`seed` must be an integer >= 0"),
        ({"gallery_labels": np.zeros(3, int)}, ValueError, "must be given together"),
    ],
)
def test_rejects_bad_options(options, error, message, rng):
    with pytest.raises(error, match=message):
        approximate_recall(*classes(rng, 64), **options)


def test_parameters_that_a_search_rejects_are_named(rng):
    x, labels = rng.normal(size=(200, 4)).astype(np.float32), np.arange(200) % 20
    with pytest.raises(ValueError, match="faiss rejects the index"):
        approximate_recall(x, labels, index="IVF4,Flat", parameters="nprobe=0")
