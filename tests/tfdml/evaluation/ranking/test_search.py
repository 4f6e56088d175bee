import numpy as np
import pytest

from tfdml.evaluation import apart, recall_at_k
from tfdml.evaluation.ranking.search import search_of


def test_queries_are_parted_from_the_gallery(rng):
    x, labels = rng.normal(size=(9, 3)), np.arange(9) % 3 + 2**40
    queries = np.array([True, False, False] * 3)
    (rows, ids), gallery = apart(x, labels[:, None], queries)
    assert rows.tolist() == x[queries].tolist()
    assert ids.tolist() == labels[queries].tolist()
    assert gallery["gallery_embeddings"].tolist() == x[~queries].tolist()
    assert gallery["gallery_labels"].tolist() == labels[~queries].tolist()


def test_all_rows_find_each_other_without_queries(rng):
    x, labels = rng.normal(size=(9, 3)), np.arange(9) % 3
    data, gallery = apart(x, labels)
    assert gallery == {}
    assert recall_at_k(*data) == recall_at_k(x, labels)


@pytest.mark.parametrize(
    "queries", [[True] * 3, [False] * 3, [True, False], [1, 0, 0], [[True], [False], [True]]]
)
def test_rejects_queries_that_leave_no_search(queries):
    with pytest.raises(ValueError, match="`queries` must be"):
        apart(np.eye(3), np.arange(3), queries)


def test_leaves_out_the_pairs_of_a_class(rng):
    """Also with classes without gallery rows, at the edges and in between."""
    labels, gallery_labels = rng.integers(0, 9, 40), rng.choice([1, 2, 4, 5, 7], 30)
    x, gallery = rng.normal(size=(40, 2)), rng.normal(size=(30, 2))
    search = search_of(x, labels, gallery_embeddings=gallery, gallery_labels=gallery_labels)
    for rows in (slice(0, 40), slice(3, 17)):
        for columns in (slice(0, 30), slice(5, 12)):
            scores = rng.normal(size=(rows.stop - rows.start, columns.stop - columns.start))
            same = np.sort(labels)[rows, None] == np.sort(gallery_labels)[None, columns]
            expected = np.where(same, -np.inf, scores)
            search.leave_out_classes(scores, rows, columns)
            np.testing.assert_array_equal(scores, expected)
