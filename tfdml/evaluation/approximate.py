"""What approximate nearest-neighbour search costs in recall, by an index of faiss."""

import contextlib
import re
import time

import numpy as np

from tfdml.checks import check_type
from tfdml.evaluation import inputs
from tfdml.evaluation.retrieval import recall_at_k

_FOUND_AT_ONCE = 2**20  # neighbours of as many queries as that makes
_PAIRS_AT_ONCE = 8192  # whose exact distances are taken at once
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
    """Tells how much Recall@K is lost when an approximate index finds the neighbours.

    "exact" is `recall_at_k`: tfdml's own, which needs no faiss. "approximate" is the share of
    queries with a row of their class among the first K that the index returns, the query itself
    left out by its row number; "lost" is the first less the second. With X[q, K] the distance of
    query q to its K-th nearest row and D[q, j] to the j-th row that the index returns, both taken
    in float64,

        overlap[K] = mean over q of #(j <= K with D[q, j] <= X[q, K]) / K

    is the share of true neighbours found, whatever their class. An index is asked once, for the
    largest K; an HNSW index that is asked for more looks at more. The rows are put in as float32,
    times a power of two, which changes no order.

    Args:
        embeddings: (n, dim) floats, finite; the queries, taken as given: not normalised.
        labels: (n,) or (n, 1) integers of any size, one class id per query.
        k: Positive integer or several, at most the gallery size, the query itself not counted.
        index: Any string of `faiss.index_factory`, for Euclidean distances: "HNSW32" (a graph),
            "IVF256,Flat" (cells of 256 centres), "IVF256,PQ16" (and codes of 16 bytes), "Flat".
        parameters: Of the search, as `faiss.ParameterSpace` reads them: "efSearch=64" of HNSW
            (default 16), "nprobe=16" of IVF (default 1 cell). Default: those of faiss.
        gallery_embeddings: (m, dim) floats searched in; by default the queries.
        gallery_labels: (m,) or (m, 1) integers; given exactly when `gallery_embeddings` are.
        seed: Of the order in which the rows are put in, on which graphs and centres depend; an
            integer >= 0. The same seed gives the same index if faiss uses one thread to build it.

    Returns:
        {"exact", "approximate", "lost", "overlap"}, each {K: Python float}, K ascending; and
        "build_seconds" (training and adding), "search_seconds" of all queries, beside them
        "exact_search_seconds" of faiss without an index, "index_bytes" and "threads", those of
        faiss. The rows an index does not return count as not found. A query without another row of
        its class is a miss, with a warning. "lost" may be negative: by luck, or where rows tie,
        which `recall_at_k` counts against the query and an index leaves as they fall.

    Raises:
        ImportError: If faiss is not installed.
        TypeError: If labels are not integers, embeddings not floats, or `index` no text.
        ValueError: If shapes disagree, an input is empty or not finite, only half a gallery is
            given, an option is out of range, or faiss refuses the index, its parameters, or to
            train it on so few rows.

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
        check_type(isinstance(text, str), f"`{name}` must be a text", **{name: text})
    queries, labels, gallery, gallery_labels = inputs.queries_and_gallery(
        embeddings, labels, gallery_embeddings, gallery_labels
    )
    among_themselves = gallery is None
    if among_themselves:
        gallery, gallery_labels = queries, labels
    counts = inputs.neighbour_counts(k, len(gallery) - among_themselves)
    rng = np.random.default_rng(inputs.whole_number(seed, "seed", at_least=0))
    order = rng.permutation(len(gallery))
    rows, query_rows = _scaled(gallery, queries)
    started = time.perf_counter()
    built = _build(faiss, index, parameters, rows[order])
    build_seconds = time.perf_counter() - started
    received = {"index": index, "parameters": parameters}

    def search(some, width):
        with _refusals(received):
            return _in_order(built.search(some, width)[1], order)

    approximate = _Search(search)
    exact = _Search(lambda some, width: faiss.knn(some, rows, width)[1])
    hits, found = np.zeros(len(counts)), np.zeros(len(counts))
    step = max(1, _FOUND_AT_ONCE // (counts[-1] + 1))
    for first in range(0, len(queries), step):
        block = np.arange(first, min(first + step, len(queries)))
        own = block if among_themselves else None
        nearest = exact.nearest(query_rows[block], counts[-1], own)
        returned = approximate.nearest(query_rows[block], counts[-1], own)
        mates = (gallery_labels[returned] == labels[block, None]) & (returned >= 0)
        hits += [np.count_nonzero(mates[:, :count].any(axis=1)) for count in counts]
        borders = np.sort(_distances(query_rows[block], rows, nearest), axis=1)
        distances = _distances(query_rows[block], rows, returned)
        found += [
            np.count_nonzero(distances[:, :count] <= borders[:, count - 1, None])
            for count in counts
        ]
    exact_recall = recall_at_k(
        embeddings,
        labels,
        counts,
        gallery_embeddings=gallery_embeddings,
        gallery_labels=gallery_labels if gallery_embeddings is not None else None,
    )
    recall = dict(zip(counts, (hits / len(queries)).tolist(), strict=True))
    overlap = found / (len(queries) * np.array(counts))
    return {
        "exact": exact_recall,
        "approximate": recall,
        "lost": {count: exact_recall[count] - recall[count] for count in counts},
        "overlap": dict(zip(counts, overlap.tolist(), strict=True)),
        "build_seconds": build_seconds,
        "search_seconds": approximate.seconds,
        "exact_search_seconds": exact.seconds,
        "index_bytes": int(faiss.serialize_index(built).size),
        "threads": int(faiss.omp_get_max_threads()),
    }


def load_faiss():
    """The faiss module.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise ImportError(
            "approximate search needs faiss: pip install -e '.[search]', or faiss-cpu alone"
        ) from error
    return faiss


def _build(faiss, index, parameters, rows):
    received = {"index": index, "parameters": parameters, "rows": len(rows), "dim": rows.shape[1]}
    with _refusals(received):
        built = faiss.index_factory(rows.shape[1], index)
        built.train(rows)
        built.add(rows)
        if parameters is not None:
            faiss.ParameterSpace().set_index_parameters(built, parameters)
    return built


@contextlib.contextmanager
def _refusals(received):
    """Turns an error of faiss into a ValueError that says what was received."""
    try:
        yield
    except RuntimeError as error:  # of which the first half names a place in the source of faiss
        cause = re.sub(_PLACE, "", str(error), flags=re.DOTALL)
        told = ", ".join(f"{name}={value!r}" for name, value in received.items())
        raise ValueError(f"faiss refuses the index ({cause}). Received: {told}") from error


class _Search:
    """A search for the nearest rows, and the seconds that it took so far."""

    def __init__(self, search):
        self.search = search
        self.seconds = 0.0

    def nearest(self, queries, count, own):
        """(n, count) gallery rows, the nearest first; -1 where no more were found.

        `own` are the gallery rows of the queries themselves, which are left out, or None.
        """
        started = time.perf_counter()
        rows = self.search(queries, count + (own is not None))
        self.seconds += time.perf_counter() - started
        if own is None:
            return rows
        dropped = rows == own[:, None]
        dropped[:, -1] |= ~dropped.any(axis=1)  # it was not found
        return rows[~dropped].reshape(len(rows), count)


def _in_order(places, order):
    """The rows that stand at places of the order in which they were put in."""
    return np.where(places < 0, -1, order[places])


def _distances(queries, gallery, rows):
    """(n, count) squared distances in float64 of queries to gallery rows; infinite for row -1."""
    distances = np.empty(rows.shape)
    step = max(1, _PAIRS_AT_ONCE // rows.shape[1])
    for first in range(0, len(rows), step):
        block = slice(first, first + step)
        near = gallery[rows[block]].astype(np.float64) - queries[block, None]
        distances[block] = np.einsum("ijk,ijk->ij", near, near)
    distances[rows < 0] = np.inf
    return distances


def _scaled(gallery, queries):
    """Both as float32, times the power of two that brings the largest number to about 1."""
    exponent = np.frexp(max(np.abs(gallery).max(), np.abs(queries).max()))[1]
    return tuple(
        np.ldexp(rows, -exponent).astype(np.float32, order="C") for rows in (gallery, queries)
    )
