"""What an index loses: its neighbours beside the exact ones, its bytes and its time."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

import numpy as np

from tfdml.evaluation.ranking import rank
from tfdml.evaluation.tiles import squared_distances
from tfdml.quiet import progress

COUNTS = (1, 10, 100)
_PROBES = (1, 4, 16, 64, 256)
_EFFORTS = (16, 64, 256)  # of a graph


class Loss(NamedTuple):
    """What an index loses with some search parameters."""

    parameters: str
    recall: dict  # {K: share of the K nearest images that it finds}
    milliseconds: float  # the median of a query


def losses(collection, index, *, queries=1000, seed=0):
    """Compares the neighbours that an index finds with the exact ones.

    With X[q, K] the distance of query q to its K-th nearest image and D[q, j] to the j-th that the
    index finds, both in float64 of the embeddings, the recall is that of `overlap` in
    `tfdml.evaluation.approximate_recall`:

        recall[K] = mean over q of #(j <= K with D[q, j] <= X[q, K]) / K

    Queries are images of the collection, without themselves, drawn at random. They are searched one
    at a time. The collection is read once more for the exact neighbours.

    Returns a list of `Loss`, one for each of a few parameters, among them those of the index.
    """
    own, rows = collection.sample(min(queries, collection.images), seed)
    most = min(COUNTS[-1], len(index) - 1)
    counts = [count for count in COUNTS if count <= most]
    stored, chosen, found, milliseconds = index.parameters, _choices(index), [], []
    for parameters in chosen:
        index.set_parameters(parameters)
        index.search(rows[:1], most + 1)  # the first of all reads the index from the disk
        ids, seconds = _found(index, own, rows, most)
        found.append(ids)
        milliseconds.append(1e3 * float(np.median(seconds)))
    index.set_parameters(stored)
    ids = np.flatnonzero(collection.readable())
    gallery = _Gallery(collection, rows, np.concatenate(found, axis=1))
    options = {"nearest": most, "depth": 0, "own": np.searchsorted(ids, own)}
    borders = rank(rows, own, gallery, ids, **options).distances
    results = []
    distances = np.split(gallery.distances, len(chosen), axis=1)
    for parameters, each, time_of_query in zip(chosen, distances, milliseconds, strict=True):
        recall = {k: float(np.mean(each[:, :k] <= borders[:, k - 1, None])) for k in counts}
        results.append(Loss(parameters, recall, time_of_query))
    return results


def _choices(index):
    """The search parameters to compare: those of the index, and common values for its type."""
    chosen = {index.parameters} - {""}
    if index.cells:
        chosen |= {f"nprobe={probe}" for probe in _PROBES if probe <= index.cells}
    elif index.factory.startswith("HNSW"):
        chosen |= {f"efSearch={effort}" for effort in _EFFORTS}
    numbers = re.compile(r"\d+").findall
    return sorted(chosen, key=lambda text: [int(number) for number in numbers(text)]) or [""]


def _found(index, own, rows, most):
    """(n, most) ids, -1 where there are no more, and the seconds of each query."""
    found, seconds = np.full((len(rows), most), -1), []
    for query, row in enumerate(rows):
        started = time.perf_counter()
        ids, _ = index.search(row[None], most + 1)
        seconds.append(time.perf_counter() - started)
        others = ids[0][(ids[0] >= 0) & (ids[0] != own[query])][:most]
        found[query, : len(others)] = others
    return found, seconds


class _Gallery:
    """Blocks of a collection, and the distances of the found ids once it was read."""

    def __init__(self, collection, queries, found):
        self.collection, self.queries, self.found = collection, queries, found
        self.distances = np.full(found.shape, np.inf)

    def __iter__(self):
        with progress("Comparing", total=self.collection.images) as bar:
            for ids, embeddings in self.collection.chunks():
                place = np.minimum(np.searchsorted(ids, self.found), len(ids) - 1)
                query, column = np.nonzero(ids[place] == self.found)
                pairs = self.queries, query, embeddings, place[query, column]
                self.distances[query, column] = np.sqrt(squared_distances(*pairs))
                yield embeddings
                bar.update(len(ids))
