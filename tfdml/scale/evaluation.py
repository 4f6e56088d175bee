"""Retrieval scores of queries in a collection: exact, shard by shard, or through its index."""

from __future__ import annotations

import collections
import warnings

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs
from tfdml.evaluation.exact.in_chunks import Chunk, ranks_in_chunks
from tfdml.evaluation.exact.metrics import Metrics
from tfdml.evaluation.exact.search import ranks_of
from tfdml.files import identity
from tfdml.progress import progress

_BLOCK_BYTES = 2**28  # of the numbers of queries, 8 bytes each
_BLOCK_PAIRS = 2**22  # of queries and relevant rows, some 50 bytes each
_FOUND_AT_ONCE = 2**20  # neighbours found by the index per block of queries
_UNLABELLED, _UNKNOWN = -1, -2  # classes of images without a label, of queries of other classes
MOST_FOUND = 10_000  # neighbours that the index finds for a query


class Gallery:
    """A `Collection` as the gallery of queries, with the classes of its images.

    Images without a label stay in the gallery and are of no class; a warning gives the number of
    those that could not be read, and one of them. Uses 5 bytes per image.

    Args:
        collection: `Collection` whose shards are all written.

    Attributes:
        readable: (n,) booleans, which images have an embedding.

    Raises:
        ValueError: If shards are missing, no image could be read, or none that could has a label.
    """

    def __init__(self, collection):
        import pyarrow as pa
        import pyarrow.compute as pc

        collection.check_complete()
        self.collection, self.readable = collection, np.zeros(collection.images, bool)
        for number in range(collection.shards):
            self.readable[collection.readable(number)] = True
        if len(self) < collection.images:
            path, reason = collection.unreadable(int(self.readable.argmin()))
            images = f"{collection.images - len(self):,} of the {collection.images:,} images"
            sentence = f"{images} of the gallery {collection.folder} could not be read, such as"
            sentence += f" {path}: {reason}"
            if not len(self):
                raise ValueError(sentence)
            warnings.warn(sentence, stacklevel=2)
        parts = [pc.unique(labels) for _, labels in self._labels()]
        self._names = pc.drop_null(pc.unique(pa.concat_arrays(parts)))
        expected = f"{collection.folder} must have labels to evaluate by"
        check(len(self._names), expected, images=collection.images, labels=0)
        self.classes = np.empty(collection.images, np.int32)
        for rows, labels in self._labels():
            self.classes[rows] = self._classes_of(labels, _UNLABELLED)

    def __len__(self):
        return int(self.readable.sum())

    def most_found(self, own):
        """The most images that a query can find, given the (n, m) ids of the queries themselves."""
        return len(self) - int(((own >= 0) & self.readable[own]).sum(axis=1).min())

    def classes_of(self, labels):
        """(n,) integers, the classes of (n,) texts; images of other classes get one of their own.

        Raises:
            TypeError: If a label is not a text.
        """
        import pyarrow as pa

        texts = all(isinstance(label, str) for label in labels)
        if not texts:
            raise TypeError("`labels` must be texts, one for each query")
        return self._classes_of(pa.array(labels, pa.string()), _UNKNOWN)

    def paths(self):
        """Yields the paths and URLs of all images, in the order of their ids."""
        for part in self.collection.listed("path"):
            yield from part["path"].to_pylist()

    def ids_of(self, paths):
        """(n, m) int64, the ids of the images that are these files; -1 where one has fewer than m.

        Warns of files that are not on this machine, of which only the paths can be compared.
        """
        queries, found = collections.defaultdict(list), [[] for _ in paths]
        for query, path in enumerate(paths):
            queries[identity(path)].append(query)
        lost, example = 0, None
        listed = progress("Comparing files", self.paths(), total=self.collection.images)
        for row, key in enumerate(map(identity, listed)):
            for query in queries.get(key, ()):
                found[query].append(row)
            if key not in queries and isinstance(key, str):
                lost, example = lost + 1, example or key
        for key, rows in queries.items():
            if isinstance(key, str) and not found[rows[0]]:
                lost, example = lost + 1, example or key
        if lost:
            warnings.warn(
                f"{lost:,} files are not on this machine, such as {example}: only their paths tell "
                f"images of the gallery {self.collection.folder} from those that search in it",
                stacklevel=2,
            )
        ids = np.full((len(found), max(1, *map(len, found))), -1)
        for row, rows in zip(ids, found, strict=True):
            row[: len(rows)] = rows
        return ids

    def chunks(self, bar):
        """Yields the `Chunk`s of the gallery; counts their rows in a bar."""
        for ids, embeddings, _ in self.collection.chunks():
            yield Chunk(ids, embeddings, self.classes[ids])
            bar.update(len(ids))

    def _labels(self):
        """Yields slices of the images with their labels, null for those that could not be read."""
        import pyarrow as pa
        import pyarrow.compute as pc

        first, none = 0, pa.scalar(None, pa.string())
        for part in self.collection.listed("label"):
            rows = slice(first, first + len(part))
            labels = part["label"].cast(pa.string())
            yield rows, pc.if_else(pa.array(self.readable[rows]), labels, none)
            first = rows.stop

    def _classes_of(self, labels, other):
        import pyarrow as pa
        import pyarrow.compute as pc

        found = pc.index_in(labels.cast(pa.string()), value_set=self._names)
        return found.fill_null(other).to_numpy(zero_copy_only=False)


def retrieval_scores_per_query(gallery, embeddings, labels, k, *, metrics=None, own=None):
    """Scores of each query in a gallery that does not fit in memory, exactly.

    The metrics are those of `tfdml.evaluation.retrieval_scores`, and the values equal its values in
    the whole gallery. Each block of queries reads the gallery twice: first the distances of the
    relevant rows, then the rows of other classes that are as near are counted. So a metric of more
    than K ranks, such as "map@r", takes no more memory than 50 bytes per pair of a query and a
    relevant row. A block holds as many queries as fit 256 MiB, or have 4 million such pairs.

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
        ValueError: If shapes disagree, a number is not finite, a metric is unknown, `k` is out of
            range, or the queries have another `dim` than the gallery.
    """
    queries, classes, own, metrics = _checked(gallery, embeddings, labels, k, metrics, own)
    blocks = _blocks(gallery, classes, queries.shape[1])
    values = {}
    with progress("Ranking", total=2 * len(blocks) * len(gallery), unit="row") as bar:
        for block in blocks:
            given = queries[block], classes[block], lambda: gallery.chunks(bar), metrics
            ranks, relevant = ranks_in_chunks(*given, own[block])
            for name, of in {**metrics.values(ranks, relevant), "relevant": relevant}.items():
                values.setdefault(name, np.empty(len(queries)))[block] = of
    inputs.warn_of_misses(values.pop("relevant"))
    return values


def scores_through_index(
    gallery, index, embeddings, labels, k, *, metrics=None, own=None, **sample
):
    """Scores of queries by the images that the index finds, and what that loses.

    The index finds as many images as the metrics need: the largest K, and for "map@r" and
    "r_precision" the largest number R of relevant rows of a query. Those that it does not find
    count as not found, and ties rank as the index orders them.

    Args:
        gallery: `Gallery`.
        index: `StoredIndex` of the same collection.
        embeddings: As for `retrieval_scores_per_query`.
        labels: As for `retrieval_scores_per_query`.
        k: As for `retrieval_scores_per_query`.
        metrics: "recall", "precision", "map@r", "r_precision", "ndcg", or some of them. Default:
            "recall" and "map@r".
        own: As for `retrieval_scores_per_query`.
        **sample: `queries`, the most that are also scored exactly, by default 1,000; and `seed`.

    Returns:
        {name: (n,) float64}, and {"queries", "exact", "approximate", "lost"}: the number of queries
        that were drawn to be scored exactly as well, and {name: mean} over these alone. "lost" may
        be negative, as cells that are not visited hold rows of other classes too.

    Raises:
        ValueError: As for `retrieval_scores_per_query`, or if a query has more than 10,000 relevant
            rows and a metric needs them all.
    """
    metrics = ("recall", "map@r") if metrics is None else metrics
    queries, classes, own, metrics = _checked(gallery, embeddings, labels, k, metrics, own)
    whole = {"map", "mrr"}.intersection(metrics.names)
    check(not whole, "`metrics` must not rank the whole gallery", metrics=metrics.names)
    some = _sampled(len(queries), **sample)
    given = gallery, queries[some], np.asarray(labels)[some].tolist(), k
    found = _found_values(gallery, index, queries, classes, own, metrics)
    exact = retrieval_scores_per_query(*given, metrics=metrics.names, own=own[some])
    means = {name: float(of.mean()) for name, of in exact.items()}
    approximate = {name: float(found[name][some].mean()) for name in means}
    lost = {name: means[name] - approximate[name] for name in means}
    return found, {"queries": len(some), "exact": means, "approximate": approximate, "lost": lost}


def _checked(gallery, embeddings, labels, k, metrics, own):
    """Queries as float32, their classes, their own ids and the `Metrics`."""
    queries = inputs.finite_rows(embeddings).astype(np.float32, copy=False)
    dims = {"dim": queries.shape[1], "of_gallery": gallery.collection.dim}
    check(dims["dim"] == dims["of_gallery"], "queries and gallery must have the same dim", **dims)
    counts = {"queries": len(queries), "labels": len(labels)}
    check(len(labels) == len(queries), "`labels` must have one text for each query", **counts)
    own = np.full(len(queries), -1) if own is None else np.asarray(own)
    check(len(own) == len(queries), "`own` must have ids for each query", shape=own.shape)
    own = own.reshape(len(queries), -1)
    most = gallery.most_found(own)
    return queries, gallery.classes_of(labels), own, Metrics.of(metrics, k, most)


def _blocks(gallery, classes, dim):
    """Slices of the queries, each with few enough numbers and pairs."""
    sizes = _class_sizes(gallery.classes)
    ends = np.cumsum(np.where(classes >= 0, sizes[classes], 0))
    most, slices, first = max(1, _BLOCK_BYTES // (8 * dim)), [], 0
    while first < len(classes):
        before = ends[first - 1] if first else 0
        last = int(np.searchsorted(ends, before + _BLOCK_PAIRS, side="right"))
        last = min(max(last, first + 1), first + most, len(classes))
        slices.append(slice(first, last))
        first = last
    return slices


def _class_sizes(classes):
    """Number of images in each class; the last two, of those without a class, are 0."""
    return np.append(np.bincount(classes[classes >= 0]), [0, 0])


def _sampled(count, queries=1000, seed=0):
    return np.sort(np.random.default_rng(seed).permutation(count)[:queries])


def _found_values(gallery, index, queries, classes, own, metrics):
    """{name: (n,) values} of the images that the index finds."""
    of_class = (own >= 0) & (gallery.classes[own] == classes[:, None])
    relevant = _class_sizes(gallery.classes)[classes] - of_class.sum(axis=1)
    depth = int(metrics.depth(relevant).max())
    expected = f"through the index a query may need at most {MOST_FOUND:,} images"
    check(depth <= MOST_FOUND, expected, needed=depth)
    values, step = {}, max(1, _FOUND_AT_ONCE // (depth + own.shape[1]))
    with progress("Searching", total=len(queries), unit="query") as bar:
        for first in range(0, len(queries), step):
            block = slice(first, first + step)
            count = min(depth + own.shape[1], len(index))
            ids, _ = index.search(queries[block], count)
            ranks = _ranks_of_found(ids, gallery.classes, classes[block], own[block])
            for name, of in metrics.values(ranks, relevant[block]).items():
                values.setdefault(name, np.empty(len(queries)))[block] = of
            bar.update(len(ids))
    return values


def _ranks_of_found(ids, gallery_classes, classes, own):
    """The `RelevantRanks` of found images, in the order in which they were found."""
    present = (ids >= 0) & (ids[:, :, None] != own[:, None]).all(axis=2)
    hit = present & (gallery_classes[ids] == classes[:, None])
    query, _ = np.nonzero(hit)
    before = np.cumsum(present & ~hit, axis=1)[hit]
    return ranks_of(0, len(ids), query, before)
