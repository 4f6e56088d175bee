"""Recall lost by approximate nearest-neighbour search with a faiss index."""

import contextlib
import re
import time

import numpy as np

from tfdml.checks import check, check_type
from tfdml.evaluation import inputs
from tfdml.evaluation.retrieval import Keywords, recall_at_k
from tfdml.evaluation.tiles import slices_of, squared_distances

_FOUND_AT_ONCE = 2**20  # neighbours found per block of queries
_PLACE = r"^Error in .* at \S+:\d+: (Error: '.*' failed: )?"


def approximate_recall(
    embeddings,
    labels,
    k=(1, 2, 4, 8),
    *,
    index="HNSW32",
    parameters=None,
    gallery_embeddings=None,
    gallery_labels=None,
    seed=0,
):
    """Measures how much Recall@K is lost when an approximate index finds the neighbours.

    "exact" is `recall_at_k`, which does not use faiss. "approximate" is the share of queries with a
    row of their class among the first K that the index returns, the query itself excluded by its
    row number; "lost" is "exact" minus "approximate". With X[q, K] the distance of query q to its
    K-th nearest row and D[q, j] to the j-th row that the index returns, both in float64,

        overlap[K] = mean over q of #(j <= K with D[q, j] <= X[q, K]) / K

    is the share of true neighbours found, whatever their class. The index is searched once, for the
    largest K; an HNSW index visits more rows for a larger K. Rows are added as float32, times a
    power of two, which preserves their order.

    Other arguments and errors are those of `recall_at_k`.

    Args:
        index: Any string of `faiss.index_factory`, for Euclidean distances: "HNSW32" (a graph),
            "IVF256,Flat" (cells of 256 centres), "IVF256,PQ16" (and codes of 16 bytes), "Flat".
        parameters: Search parameters, as `faiss.ParameterSpace` reads them: "efSearch=64" of HNSW
            (default 16), "nprobe=16" of IVF (default 1 cell). Default: those of faiss.
        seed: Integer >= 0, seed of the order in which rows are added, on which graphs and centres
            depend. The same seed gives the same index if faiss builds it with one thread.

    Returns:
        {"exact", "approximate", "lost", "overlap"}, each {K: Python float}, K ascending; and
        "build_seconds" (training and adding), "search_seconds" of all queries,
        "exact_search_seconds" of brute-force search in faiss, "index_bytes" and "threads" of
        faiss. Rows that the index does not return count as not found. A query without another row
        of its class is a miss, with a warning. "lost" may be negative: by chance, or because
        `recall_at_k` counts ties against the query and an index breaks them arbitrarily.

    Raises:
        ImportError: If faiss is not installed.
        TypeError: If `index` or `parameters` are not strings.
        ValueError: If faiss rejects the index, its parameters, or the number of rows as too small
            to train it.

    Source:
        Douze et al. The Faiss library. 2024. Malkov, Yashunin. Efficient and robust approximate
        nearest neighbor search using HNSW graphs. PAMI 2018. Jegou, Douze, Schmid. Product
        quantization for nearest neighbor search. PAMI 2011 (IVF, PQ).

    Example:
        >>> line = np.array([[0.0], [1.0], [3.0], [3.5]])
        >>> found = approximate_recall(line, np.array([0, 1, 0, 1]), k=(1, 2, 3), index="Flat")
        >>> found["approximate"], found["lost"]
        ({1: 0.0, 2: 0.5, 3: 1.0}, {1: 0.0, 2: 0.0, 3: 0.0})
    """
    faiss = load_faiss()
    for name, text in (("index", index), ("parameters", parameters or "")):
        check_type(isinstance(text, str), f"`{name}` must be a string", **{name: text})
    given = Keywords(gallery_embeddings=gallery_embeddings, gallery_labels=gallery_labels)
    data = embeddings, labels, gallery_embeddings, gallery_labels
    queries, labels, gallery, ids = inputs.queries_and_gallery(*data)
    among_themselves = gallery_embeddings is None
    query_ids, ids = inputs.dense_ids(labels, ids)
    counts = inputs.neighbour_counts(k, len(gallery) - among_themselves)
    seed = inputs.whole_number(seed, "seed", at_least=0)
    exponent = -int(np.frexp(max(np.abs(of).max() for of in (queries, gallery)))[1])
    rows = np.ldexp(gallery, exponent).astype(np.float32)
    queries = rows if among_themselves else np.ldexp(queries, exponent).astype(np.float32)
    received = {"index": index, "parameters": parameters, "rows": len(rows), "dim": rows.shape[1]}
    order = np.random.default_rng(seed).permutation(len(rows))
    added, started = rows[order], time.perf_counter()
    with as_value_error(received):
        built = faiss.index_factory(rows.shape[1], index)
        built.train(added)
        built.add(added)
        if parameters is not None:
            faiss.ParameterSpace().set_index_parameters(built, parameters)
    seconds = {"build_seconds": time.perf_counter() - started}

    def search(some, width):
        with as_value_error(received):
            places = built.search(some, width)[1]
        return np.where(places < 0, -1, order[places])

    searches = {
        "search_seconds": search,
        "exact_search_seconds": lambda some, width: faiss.knn(some, rows, width)[1],
    }
    seconds |= dict.fromkeys(searches, 0.0)
    hits, found = np.zeros(len(counts)), np.zeros(len(counts))
    for block in slices_of(0, len(queries), max(1, _FOUND_AT_ONCE // (counts[-1] + 1))):
        own = np.arange(block.start, block.stop)[:, None] if among_themselves else -2
        nearest = {}
        for name, of in searches.items():
            started = time.perf_counter()
            nearest[name] = of(queries[block], counts[-1] + among_themselves)
            seconds[name] += time.perf_counter() - started
        returned, exact = (_others(of, own, counts[-1]) for of in nearest.values())
        relevant = (ids[returned] == query_ids[block, None]) & (returned >= 0)
        borders = np.sort(_distances(queries[block], rows, exact), axis=1)
        distances = _distances(queries[block], rows, returned)
        hits += [relevant[:, :count].any(axis=1).sum() for count in counts]
        found += [(distances[:, :k] <= borders[:, k - 1, None]).sum() for k in counts]
    exact = recall_at_k(embeddings, labels, counts, **given)
    recall = dict(zip(counts, (hits / len(queries)).tolist(), strict=True))
    overlap = found / (len(queries) * np.array(counts))
    return {
        "exact": exact,
        "approximate": recall,
        "lost": {count: exact[count] - recall[count] for count in counts},
        "overlap": dict(zip(counts, overlap.tolist(), strict=True)),
        **seconds,
        "index_bytes": int(faiss.serialize_index(built).size),
        "threads": int(faiss.omp_get_max_threads()),
    }


def check_index(index, parameters, dim, rows):
    """Raises a ValueError if faiss rejects an index or its parameters, or it has too many cells.

    Args:
        index: As for `approximate_recall`.
        parameters: As for `approximate_recall`.
        dim: Numbers of a row.
        rows: Number of rows to search in, of an image each.
    """
    faiss = load_faiss()
    with as_value_error({"index": index, "parameters": parameters, "dim": dim}):
        made = faiss.index_factory(dim, index)
        if parameters is not None:
            faiss.ParameterSpace().set_index_parameters(made, parameters)
    ivf = faiss.try_extract_index_ivf(made)
    if ivf is not None and ivf.quantizer_trains_alone != 1:  # else its cells need no row each
        cells = {"cells": ivf.nlist, "images": rows}
        check(ivf.nlist <= rows, "`index` must not have more cells than images", **cells)


def load_faiss():
    """The faiss module.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        needed = "faiss: pip install -e '.[search]', or only faiss-cpu"
        raise ImportError(f"approximate search requires {needed}") from error
    return faiss


@contextlib.contextmanager
def as_value_error(received):
    """Turns an error of faiss into a ValueError with the received values.

    Args:
        received: {name: value}, among them those that faiss may have rejected.
    """
    try:
        yield
    except RuntimeError as error:  # its message begins with a location in the source of faiss
        cause = re.sub(_PLACE, "", str(error), flags=re.DOTALL)
        values = ", ".join(f"{name}={value!r}" for name, value in received.items())
        raise ValueError(f"faiss rejects the index ({cause}). Received: {values}") from error


def _others(rows, own, count):
    """(n, count) found rows, nearest first, without the queries themselves; -1 stays."""
    kept = rows != own
    kept[:, -1] &= kept.sum(axis=1) <= count
    return rows[kept].reshape(-1, count)


def _distances(queries, gallery, rows):
    """(n, count) squared float64 distances of queries to gallery rows; infinite for row -1."""
    asked = np.repeat(np.arange(len(rows)), rows.shape[1])
    distances = squared_distances(queries, asked, gallery, rows.reshape(-1)).reshape(rows.shape)
    distances[rows < 0] = np.inf
    return distances
