"""The names of images beside the values of queries."""

import numpy as np
import pytest

from tfdml.evaluation import load_queries, save_queries

LABELS, NAMES = np.array([4, 4, 9]), ["a/1.png", "a/2 $x$.png", "b/a very long name  of a file.png"]
VALUES = {"map": [1.0, 0.5, 0.0]}


def test_the_values_of_queries_carry_their_ids(tmp_path):
    path = tmp_path / "queries.npz"
    save_queries(path, VALUES, LABELS, images={}, ids=NAMES)
    assert load_queries(path).ids.tolist() == NAMES
    assert list(load_queries(path).values) == ["map"]
    with pytest.raises(ValueError, match=r"`ids` .* Received: ids=2, labels=3"):
        save_queries(path, VALUES, LABELS, images={}, ids=NAMES[:2])
    save_queries(path, VALUES, LABELS, images={})
    assert load_queries(path).ids is None
