"""Recall lost by approximate nearest-neighbour search with a faiss index."""

import contextlib
import time

import numpy as np

from tfdml.checks import check, check_type
from tfdml.evaluation import inputs
from tfdml.evaluation.faiss_index import as_value_error, load_faiss
from tfdml.evaluation.metrics import read
from tfdml.evaluation.ranking import ranking_of
from tfdml.evaluation.tiles import slices_of, squared_distances

_FOUND_AT_ONCE = 2**20  # neighbours found per block of queries


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

    "exact" is `recall_at_k`, "approximate" the same of the rows that the index returns, "lost"
    their difference, which chance may make negative. With X[q, K] the distance of query q to its
    K-th nearest row and D[q, j] to the j-th row that the index returns, both in float64,

        overlap[K] = mean over q of #(j <= K with D[q, j] <= X[q, K]) / K

    Rows that it does not return count as not found. Other arguments and errors are those of
    `recall_at_k`.

    Args:
        index: Any string of `faiss.index_factory`, for Euclidean distances: "HNSW32" (a graph),
            "IVF256,Flat" (cells of 256 centres), "IVF256,PQ16" (and codes of 16 bytes), "Flat".
        parameters: Search parameters, as `faiss.ParameterSpace` reads them: "efSearch=64" of HNSW
            (default 16), "nprobe=16" of IVF (default 1 cell). Default: those of faiss.
        seed: Integer >= 0, seed of the order in which rows are added; with one thread of faiss, the
            same seed gives the same index.

    Returns:
        {"exact", "approximate", "lost", "overlap"}, each {K: Python float}, K ascending; and
        "build_seconds" (training and adding), "search_seconds" and "exact_search_seconds" (by
        `rank`) of all queries, "index_bytes" and "threads" of faiss.

    Raises:
        ImportError: If faiss is not installed.
        TypeError: If `index` or `parameters` are not strings.
        ValueError: If faiss rejects the index, its parameters, or the number of rows.

    Source:
        Douze et al. The Faiss library. 2024. Malkov, Yashunin. Efficient and robust approximate
        nearest neighbor search using HNSW graphs. PAMI 2018. Jegou, Douze, Schmid. Product
        quantization for nearest neighbor search. PAMI 2011 (IVF, PQ).
    """
    faiss = load_faiss()
    for name, text in (("index", index), ("parameters", parameters or "")):
        check_type(isinstance(text, str), f"`{name}` must be a string", **{name: text})
    search = inputs.search_of(embeddings, labels, gallery_embeddings, gallery_labels).in_one_array()
    alone, counts = search.among_themselves, inputs.neighbour_counts(k, search.most)
    order = inputs.generator(seed).permutation(len(search.gallery))
    inputs.warn_of_misses(search.relevant)
    gallery_classes = search.gallery_keys // search.width
    exponent = -int(np.frexp(max(np.abs(of).max() for of in (search.queries, search.gallery)))[1])
    rows = np.ldexp(search.gallery[order], exponent).astype(np.float32)
    received = {"index": index, "parameters": parameters, "rows": len(rows), "dim": rows.shape[1]}
    seconds = dict.fromkeys(("build_seconds", "search_seconds", "exact_search_seconds"), 0.0)
    with as_value_error(received), _timed(seconds, "build_seconds"):
        built = _empty_index(index, parameters, rows.shape[1])
        built.train(rows)
        built.add(rows)
    exact, approximate, overlap = np.zeros((3, len(counts)))
    step = max(1, _FOUND_AT_ONCE // (counts[-1] + 1))
    for block in slices_of(0, len(search.kept), step):
        some = search if step >= len(search.kept) else search.of(block)
        by_number = np.argsort(some.kept)
        own, classes = some.kept[by_number], some.classes[by_number]
        with _timed(seconds, "exact_search_seconds"):
            ranking = ranking_of(some, nearest=counts[-1], depth=counts[-1], first_only=True)
        queries = np.ldexp(search.queries[own], exponent).astype(np.float32)
        with as_value_error(received), _timed(seconds, "search_seconds"):
            places = built.search(queries, counts[-1] + alone)[1]
        found = np.where(places < 0, -1, order[places])
        kept = found != (own[:, None] if alone else -2)
        kept[:, -1] &= kept.sum(axis=1) <= counts[-1]
        found = found[kept].reshape(-1, counts[-1])
        pairs = search.queries, np.repeat(own, counts[-1]), search.gallery, found.reshape(-1)
        distances = np.ldexp(np.sqrt(squared_distances(*pairs, exponent)), -exponent)
        near = np.where(found < 0, np.inf, distances.reshape(found.shape))
        relevant = (gallery_classes[found] == classes[:, None]) & (found >= 0)
        for i, count in enumerate(counts):
            exact[i] += read(ranking, "recall", count).sum()
            approximate[i] += relevant[:, :count].any(axis=1).sum()
            limit = ranking.distances[:, count - 1, None]
            overlap[i] += (near[:, :count] <= limit).sum() / count
    exact, approximate, overlap = (of / len(search.kept) for of in (exact, approximate, overlap))
    means = exact, approximate, exact - approximate, overlap
    means = [dict(zip(counts, of.tolist(), strict=True)) for of in means]
    return {
        **dict(zip(("exact", "approximate", "lost", "overlap"), means, strict=True)),
        **seconds,
        "index_bytes": int(faiss.serialize_index(built).size),
        "threads": int(faiss.omp_get_max_threads()),
    }


def check_index(index, parameters, dim, rows):
    """Raises a ValueError if faiss rejects an index of images, or it has more cells than images."""
    with as_value_error({"index": index, "parameters": parameters, "dim": dim}):
        made = _empty_index(index, parameters, dim)
    ivf = load_faiss().try_extract_index_ivf(made)
    if ivf is not None and ivf.quantizer_trains_alone != 1:  # else its cells need no row each
        cells = {"cells": ivf.nlist, "images": rows}
        check(ivf.nlist <= rows, "`index` must not have more cells than images", **cells)


def _empty_index(index, parameters, dim):
    faiss = load_faiss()
    made = faiss.index_factory(dim, index)
    if parameters is not None:
        faiss.ParameterSpace().set_index_parameters(made, parameters)
    return made


@contextlib.contextmanager
def _timed(seconds, name):
    """Adds the seconds of a block of code."""
    started = time.perf_counter()
    yield
    seconds[name] += time.perf_counter() - started
