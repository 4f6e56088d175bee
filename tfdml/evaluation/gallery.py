"""Splits rows into queries and gallery."""

import numpy as np

from tfdml.checks import check
from tfdml.evaluation import inputs


def apart(embeddings, labels, queries=None):
    """Splits rows into the arguments of a search, such as those of `retrieval_scores`.

    Args:
        embeddings: (n, dim) floats.
        labels: (n,) or (n, 1) integers.
        queries: (n,) booleans: true for queries, false for gallery rows. None to use all rows as
            both.

    Returns:
        `(data, gallery)`: the embeddings and labels of the queries, and a dict of the keywords
        `gallery_embeddings` and `gallery_labels`, empty if `queries` is None.

    Raises:
        TypeError: If `labels` are not integers or `embeddings` not floats.
        ValueError: If shapes disagree, an input is empty or not finite, or `queries` are not (n,)
            booleans, some of them true and some false.

    Example:
        >>> from tfdml.evaluation import recall_at_k
        >>> line, labels = np.array([[0.0], [1.0], [3.0], [3.5]]), np.array([0, 1, 0, 1])
        >>> data, gallery = apart(line, labels, np.array([True, True, False, False]))
        >>> recall_at_k(*data, k=1, **gallery)
        {1: 0.5}
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    if queries is None:
        return (embeddings, labels), {}
    queries = np.asarray(queries)
    check(
        queries.shape == labels.shape
        and queries.dtype == bool
        and 0 < queries.sum() < len(queries),
        "`queries` must be (n,) booleans, some of them true and some false",
        **{"queries.shape": queries.shape, "queries.dtype": queries.dtype, "n": len(labels)},
    )
    gallery = {"gallery_embeddings": embeddings[~queries], "gallery_labels": labels[~queries]}
    return (embeddings[queries], labels[queries]), gallery
