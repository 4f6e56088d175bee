"""What is done to embeddings after a training: projection, query expansion, mutual neighbours."""

import functools

import numpy as np
from scipy.sparse import csr_array
from sklearn.covariance import LedoitWolf
from sklearn.metrics.pairwise import euclidean_distances

from tfdml.checks import check, check_not_negative, check_share
from tfdml.evaluation import inputs
from tfdml.evaluation.nearest_mean import unit_rows
from tfdml.evaluation.ranking import nearest_neighbours, rank
from tfdml.evaluation.tiles import slices_of, squared_distances

_ROWS = 64  # whose distances to all are computed at once
_SMALLEST = 1e-10  # share of the largest variance below which an axis is noise of rounding


def fit_pca(embeddings, dims=None, *, whiten=False):
    """Principal components of embeddings, as a linear layer: `embeddings @ kernel + bias`.

    Args:
        embeddings: (n, dim) floats, finite, such as those of the training images.
        dims: Components to keep, at most dim and n - 1; all if None.
        whiten: Whether each has variance 1 over these rows.

    Returns:
        (dim, dims) and (dims,) float64, `kernel` and `bias`.

    Raises:
        TypeError: If `embeddings` are not floats.
        ValueError: If they are not finite or `dims` are out of range; or if components to be
            whitened have no variance.

    Source:
        Jégou, Chum. Negative evidences and co-occurences in image retrieval: the benefit of PCA and
        whitening. ECCV 2012.
    """
    rows = inputs.finite_rows(embeddings).astype(np.float64)
    most = min(len(rows) - 1, rows.shape[1])
    dims = inputs.whole_number(most if dims is None else dims, "dims", at_least=1)
    check(dims <= most, "`dims` must be <= dim and < n", dims=dims, shape=rows.shape)
    mean = rows.mean(axis=0)
    variances, kernel = np.linalg.eigh(np.atleast_2d(np.cov(rows, rowvar=False)))
    variances, kernel = variances[: -dims - 1 : -1], kernel[:, : -dims - 1 : -1]
    if whiten:
        varying = int((variances > _SMALLEST * variances[0]).sum())
        expectation = "components to whiten must vary: give fewer `dims`"
        check(varying == dims, expectation, dims=dims, varying=varying)
        kernel = kernel / np.sqrt(variances)
    return kernel, -mean @ kernel


def within_class_whitening(residuals):
    """(dim, dim) matrix that whitens rows around class means, by a shrunk covariance."""
    covariance = LedoitWolf(assume_centered=True).fit(residuals).covariance_
    covariance += (1e-9 * np.trace(covariance) or 1.0) * np.eye(len(covariance))
    return np.linalg.inv(np.linalg.cholesky(covariance)).T


def project(embeddings, kernel, bias):
    """(n, dims) floats, `embeddings @ kernel + bias`, of unit length if all embeddings have it."""
    rows = (embeddings @ kernel + bias).astype(embeddings.dtype)
    unit = np.allclose(np.linalg.norm(embeddings, axis=1), 1.0, atol=1e-3)
    return unit_rows(rows).astype(embeddings.dtype) if unit else rows


def expand_queries(embeddings, neighbours=10, *, alpha=3.0, gallery_embeddings=None):
    """Alpha query expansion: the mean of each query and its nearest rows, by their similarity.

    With unit rows q and g[1], g[2], ..., the nearest of the gallery, which q itself is not:

        unit length of q + sum of max(0, q . g[i])**alpha * g[i]

    Args:
        embeddings: (n, dim) floats, finite, of any length.
        neighbours: Number of rows that are added; at most those that there are.
        alpha: Exponent >= 0; 0 for their plain mean.
        gallery_embeddings: (m, dim) floats searched in; the other queries if None.

    Returns:
        (n, dim) float64, to search the gallery of unit rows with.

    Raises:
        TypeError: If embeddings are not floats.
        ValueError: If shapes disagree, or a number is out of range.

    Source:
        Radenović, Tolias, Chum. Fine-tuning CNN image retrieval with no human annotation. TPAMI
        2019, section 3.4.
    """
    check_not_negative(alpha=alpha)
    rows = gallery = unit_rows(inputs.finite_rows(embeddings))
    if gallery_embeddings is not None:
        gallery = unit_rows(inputs.gallery_rows(gallery_embeddings, rows))
    neighbours = inputs.whole_number(neighbours, "neighbours", at_least=1)
    alone = gallery is rows
    most = len(gallery) - int(alone)
    expectation = "`neighbours` must not exceed the rows to find"
    check(neighbours <= most, expectation, neighbours=neighbours, rows_to_find=most)
    searched = () if alone else (gallery, np.arange(len(gallery)))
    found = rank(rows, np.arange(len(rows)), *searched, nearest=neighbours, depth=0).nearest
    expanded = rows.copy()
    for place in range(neighbours):
        added = gallery[found[:, place]]
        similarity = np.einsum("ij,ij->i", rows, added)
        expanded += np.maximum(similarity, 0)[:, None] ** alpha * added
    return unit_rows(expanded)


def k_reciprocal_distances(
    embeddings, gallery_embeddings=None, *, k1=20, k2=6, original_weight=0.3
):
    """Distances by mutual nearest neighbours, for re-ranking whole galleries without labels.

    A row is encoded by the rows that are among its `k1` nearest and have it among theirs, and by
    those of half as many of these; the nearer, the larger its number. Codes are averaged over the
    `k2` nearest rows, itself included. With J the Jaccard distance of codes, and D the Euclidean:

        original_weight * D**2 / (largest D**2 of the query) + (1 - original_weight) * J

    Args:
        embeddings: (n, dim) floats, finite; the queries.
        gallery_embeddings: (m, dim) floats, finite; the queries if None.
        k1: Neighbours; below n + m.
        k2: Rows over which codes are averaged; at most `k1`.
        original_weight: 0 to below 1.

    Returns:
        A function of (b,) row numbers of queries, to their (b, m) float64 distances to the gallery.
        Nothing of the size n * m is kept.

    Raises:
        TypeError: If embeddings are not floats.
        ValueError: If shapes disagree, or a number is out of range.

    Source:
        Zhong, Zheng, Cao, Li. Re-ranking person re-identification with k-reciprocal encoding. CVPR
        2017, and its code.
    """
    rows, first = inputs.finite_rows(embeddings), 0
    if gallery_embeddings is not None:
        first = len(rows)
        rows = np.concatenate([rows, inputs.gallery_rows(gallery_embeddings, rows)])
    k1 = inputs.whole_number(k1, "k1", at_least=1, below=len(rows))
    k2 = inputs.whole_number(k2, "k2", at_least=1, below=k1 + 1)
    check_share(original_weight=original_weight)
    rows = rows.astype(np.float64)
    nearest = np.column_stack([np.arange(len(rows)), nearest_neighbours(rows, k1)])
    blocks = slices_of(0, len(rows), _ROWS)
    squared = (euclidean_distances(rows[some], rows, squared=True) for some in blocks)
    largest = np.concatenate([block.max(axis=1) for block in squared])
    codes = _mean_codes(rows, nearest, k2, np.maximum(largest, np.finfo(float).tiny))
    gallery, columns = rows[first:], codes[first:].tocsc()

    def block(some):
        original = euclidean_distances(rows[some], gallery, squared=True)
        original /= np.maximum(largest[some], 1e-300)[:, None]
        return original_weight * original + (1 - original_weight) * _jaccard(codes[some], columns)

    def distances(queries):
        queries = np.asarray(queries)
        return np.concatenate([block(queries[some]) for some in slices_of(0, len(queries), _ROWS)])

    return distances


def rank_by(distances, labels, gallery_labels=None, **kind):
    """As `rank`, by a function such as `k_reciprocal_distances` returns.

    Args:
        distances: Of row numbers of queries, to their distances to the gallery.
        labels: (n,) integers, class ids of the queries.
        gallery_labels: (m,) integers; those of the queries if None, which do not find themselves.
        **kind: Such as `nearest` and `depth`.
    """
    numbers = np.arange(len(labels), dtype=float)[:, None]
    if gallery_labels is None:
        gallery_labels, kind = labels, {**kind, "own": np.arange(len(labels))}

    @functools.lru_cache(1)
    def scores_of(queries):
        return -distances(np.array(queries))

    def similarity(queries, rows):
        return scores_of(tuple(queries[:, 0].astype(int)))[:, rows[:, 0].astype(int)]

    gallery = np.arange(len(gallery_labels), dtype=float)[:, None]
    return rank(numbers, labels, gallery, gallery_labels, similarity=similarity, **kind)


def _mutual(nearest, k):
    """(n, n) sparse matrix: 1 where rows are among the k nearest of each other."""
    count = len(nearest)
    columns, starts = nearest[:, : k + 1].reshape(-1), (k + 1) * np.arange(count + 1)
    forward = csr_array((np.ones(len(columns)), columns, starts), shape=(count, count))
    return forward.multiply(forward.T).tocsr()


def _mean_codes(rows, nearest, k2, largest):
    """(n, n) sparse matrix of codes, whose rows have the sum 1."""
    count, k1 = len(rows), nearest.shape[1] - 1
    near, half = _mutual(nearest, k1), _mutual(nearest, int(np.around(k1 / 2)))
    sizes, parts = half.sum(axis=1), []
    for some in slices_of(0, count, _ROWS):
        own = near[some]
        shared = (own @ half.T).multiply(own).tocsr()
        shared.data = (shared.data > 2 / 3 * sizes[shared.indices]).astype(float)
        query, row = (own + shared @ half).nonzero()
        squared = squared_distances(rows, query + some.start, rows, row)
        weights = np.exp(-squared / largest[query + some.start])
        weights /= np.bincount(query, weights)[query]
        parts.append((weights, query + some.start, row))
    weights, query, row = map(np.concatenate, zip(*parts, strict=True))
    codes = csr_array((weights, (query, row)), shape=(count, count))
    near = nearest[:, :k2].reshape(-1), k2 * np.arange(count + 1)
    return csr_array((np.full(len(near[0]), 1 / k2), *near), shape=(count, count)) @ codes


def _jaccard(codes, columns):
    """(b, m) Jaccard distances of sparse codes, of (b, n) rows and (m, n) columns of them."""
    starts = columns.indptr[codes.indices]
    sizes = columns.indptr[codes.indices + 1] - starts
    entry = np.repeat(starts - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
    query = np.repeat(np.arange(codes.shape[0]), np.diff(codes.indptr))
    least = np.minimum(np.repeat(codes.data, sizes), columns.data[entry])
    place = np.repeat(query, sizes) * columns.shape[0] + columns.indices[entry]
    shape = codes.shape[0], columns.shape[0]
    shared = np.bincount(place, least, shape[0] * shape[1]).reshape(shape)
    return 1 - shared / (2 - shared)
