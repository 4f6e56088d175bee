"""Retrieval scores of queries in a collection: exact, shard by shard, or through its index."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.metrics import Metrics
from tfdml.evaluation.ranking import Ranking, RelevantRanks
from tfdml.evaluation.retrieval import values_of
from tfdml.evaluation.tiles import slices_of
from tfdml.files import identity
from tfdml.quiet import progress
from tfdml.scale.layout import REMOVED

_FOUND_AT_ONCE = 2**20  # neighbours found by the index per block of queries
_UNLABELLED, _UNKNOWN = -1, -2  # classes of images without a label, of queries of other classes
MOST_FOUND = 10_000  # neighbours that the index finds for a query


class Gallery:
    """A `Collection` as the gallery of queries, with the classes of its images.

    Iterating yields blocks of the embeddings of images that could be read; a warning gives the
    number of the others, and one of them. Uses 5 bytes per image.

    Args:
        collection: `Collection` whose shards are all written, with some label.

    Attributes:
        readable: (n,) booleans, which images have an embedding.
        classes: (m,) integers, the classes of these; -1 for an image without a label.
    """

    def __init__(self, collection):
        collection.check_complete()
        expected = f"the gallery {collection.folder} must have images"
        check(collection.images, expected, images=collection.images)
        errors = collection.columns("error")["error"]
        self.collection, self.readable = collection, errors.is_null().to_numpy()
        failed = np.flatnonzero(pc.fill_null(pc.not_equal(errors, REMOVED), False))
        if len(failed) or not len(self):
            first = int(failed[0]) if len(failed) else 0
            number, place = divmod(first, collection.shard_size)
            path = collection.read(number, ["path"])["path"][place]
            images = f"{len(failed):,} of the {collection.images:,} images"
            sentence = f"{images} of the gallery {collection.folder} could not be read, such as"
            sentence += f" {path}: {errors[first]}"
            if not len(self):
                raise ValueError(sentence)
            warnings.warn(sentence, stacklevel=2)
        labels = collection.columns("label")["label"].cast(pa.string())
        labels = labels.filter(pa.array(self.readable)).dictionary_encode()
        labels = labels.combine_chunks()
        self.classes = labels.indices.fill_null(_UNLABELLED).to_numpy()
        self._classes = {name: i for i, name in enumerate(labels.dictionary.to_pylist())}
        expected = f"{collection.folder} must have labels to evaluate by"
        check(self._classes, expected, images=collection.images, labels=0)

    def __len__(self):
        return int(self.readable.sum())

    def __iter__(self):
        with progress("Ranking", total=len(self), unit="row") as bar:
            for ids, embeddings in self.collection.chunks():
                yield embeddings
                bar.update(len(ids))

    def most_found(self, own):
        """The most images that a query can find, given the (n, m) ids of the queries themselves."""
        return len(self) - int((self.rows_of(own) >= 0).sum(axis=1).min())

    def classes_of(self, labels):
        """(n,) integers, the classes of (n,) texts; others have one of their own."""
        if not all(isinstance(label, str) for label in labels):
            raise TypeError("`labels` must be texts, one for each query")
        return np.array([self._classes.get(label, _UNKNOWN) for label in labels])

    def paths(self):
        """Yields the paths and URLs of all images, in the order of their ids."""
        for number in range(self.collection.shards):
            yield from self.collection.read(number, ["path"])["path"].to_pylist()

    def ids_of(self, paths):
        """(n, m) int64, the ids of the images that are these files; -1 where one has fewer."""
        queries = [identity(path) for path in paths]
        found: dict = {key: [] for key in queries}
        listed = progress("Comparing files", self.paths(), total=self.collection.images)
        for row, key in enumerate(map(identity, listed)):
            if key in found:
                found[key].append(row)
        ids = np.full((len(queries), max(1, *map(len, found.values()))), -1)
        for row, key in zip(ids, queries, strict=True):
            row[: len(found[key])] = found[key]
        return ids

    def rows_of(self, ids):
        """Numbers of ids among the images that could be read; -1 for others and for the id -1."""
        return np.where(self.readable[ids] & (ids >= 0), np.cumsum(self.readable)[ids] - 1, -1)


def retrieval_scores_per_query(gallery, embeddings, labels, k, *, metrics=None, own=None):
    """Scores of each query in a gallery that does not fit in memory, exactly.

    The metrics are those of `tfdml.evaluation.retrieval_scores`, and the values equal its values in
    the whole gallery, which is read twice: first the distances of the relevant rows, then the rows
    of other classes that are as near are counted. Queries with more than 8 million relevant rows in
    all are ranked in parts, each of which reads the gallery twice.

    Args:
        gallery: `Gallery`.
        embeddings: (n, dim) floats, finite; the queries.
        labels: (n,) texts, their labels.
        k: Positive integer or several, for the metrics "@K"; at most the images of the gallery.
        metrics: Names of metrics, or one. Default: all.
        own: (n,) or (n, m) ids of the images that are the queries themselves, which are excluded;
            -1 for none, as `Gallery.ids_of` returns. Default: none is.

    Returns:
        {name: (n,) float64 in [0, 1]}; 0 for a query without relevant rows, of which a warning
        gives the number.

    Raises:
        TypeError: If `embeddings` are not floats or `labels` not texts.
        ValueError: As for `tfdml.evaluation.retrieval_scores`.
    """
    return values_of(*_search_and_metrics(gallery, embeddings, labels, k, metrics, own))


def scores_through_index(
    gallery, index, embeddings, labels, k, *, metrics=None, own=None, queries=1000, seed=0
):
    """Scores of queries by the images that the index finds, and what that loses.

    The index finds as many images as the metrics need: the largest K, and for "map@r" and
    "r_precision" the largest number R of relevant rows of a query. Those that it does not find
    count as not found, and ties rank as the index orders them.

    Other arguments and errors are those of `retrieval_scores_per_query`.

    Args:
        index: `StoredIndex` of the same collection.
        metrics: "recall", "precision", "map@r", "r_precision", "ndcg", or some of them. Default:
            "recall" and "map@r".
        queries: The most that are also scored exactly.
        seed: Integer >= 0, seed of their draw.

    Returns:
        {name: (n,) float64}, and {"queries", "exact", "approximate", "lost"}: the number of queries
        that were drawn to be scored exactly as well, and {name: mean} over these alone. "lost" may
        be negative, as cells that are not visited hold rows of other classes too.

    Raises:
        ValueError: If a query has more than 10,000 relevant rows and a metric needs them all.
    """
    metrics = ("recall", "map@r") if metrics is None else metrics
    search, metrics = _search_and_metrics(gallery, embeddings, labels, k, metrics, own)
    whole = {"map", "mrr"}.intersection(metrics.names)
    check(not whole, "`metrics` must not rank the whole gallery", metrics=metrics.names)
    some = np.random.default_rng(seed).permutation(len(search.kept))[:queries]
    found = _found_values(gallery, index, search, metrics)
    exact = values_of(search.of(np.isin(search.kept, some)), metrics)
    exact = {name: float(values.mean()) for name, values in exact.items()}
    approximate = {name: float(found[name][some].mean()) for name in exact}
    lost = {name: exact[name] - approximate[name] for name in exact}
    return found, {"queries": len(some), "exact": exact, "approximate": approximate, "lost": lost}


def _search_and_metrics(gallery, embeddings, labels, k, metrics, own):
    """The arguments, checked, as a `Search` and `Metrics`."""
    queries = inputs.finite_rows(embeddings).astype(np.float32, copy=False)
    dims = {"dim": queries.shape[1], "gallery_dim": gallery.collection.dim}
    check(len({*dims.values()}) == 1, "queries and gallery must have the same dim", **dims)
    own = np.full(len(queries), -1) if own is None else np.asarray(own)
    own = own.reshape(len(own), -1)
    data = queries, gallery.classes_of(labels), gallery, gallery.classes
    search = inputs.search_of(*data, own=gallery.rows_of(own))
    return search, Metrics.of(metrics, k, gallery.most_found(own))


def _found_values(gallery, index, search, metrics):
    """{name: (n,) values} of the images that the index finds."""
    relevant, own = search.relevant, search.own.shape[1]
    depth = int(metrics.depth(relevant).max())
    expected = f"through the index a query may need at most {MOST_FOUND:,} images"
    check(depth <= MOST_FOUND, expected, needed=depth)
    values, count = {}, min(depth + own, len(index))
    with progress("Searching", total=len(relevant), unit="query") as bar:
        for some in slices_of(0, len(relevant), max(1, _FOUND_AT_ONCE // (depth + own))):
            queries = search.kept[some]
            ids, _ = index.search(search.queries[queries], count)
            ranks = _ranks_of_found(search.of(some), gallery.rows_of(ids))
            ranking = Ranking(relevant[some], ranks, None, None, None)
            for name, found in metrics.values(ranking).items():
                values.setdefault(name, np.empty(len(relevant)))[queries] = found
            bar.update(len(ids))
    return values


def _ranks_of_found(search, rows):
    """The `RelevantRanks` of (n, count) gallery rows, in the order in which they were found."""
    present = (rows >= 0) & (rows[:, :, None] != search.own[:, None]).all(axis=2)
    same = search.gallery_keys[rows] // search.width == search.classes[:, None]
    hit = present & same
    query, _ = np.nonzero(hit)
    return RelevantRanks(query, np.cumsum(hit, axis=1)[hit], np.cumsum(present, axis=1)[hit])
