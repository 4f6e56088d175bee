import numpy as np
import pytest

from tfdml.evaluation import apart, recall_at_k


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
