import os
import random
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tfdml.evaluation import map_at_r, mean_reciprocal_rank, retrieval_scores
from tfdml.evaluation.ranking import by_distance, nearest
from tfdml.evaluation.ranking.threads import in_threads


@pytest.fixture
def _eight_threads(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)


def blas_threads():
    return {
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


@pytest.mark.usefixtures("_eight_threads")
def test_computes_parts_at_once_in_their_order():
    all_here = threading.Barrier(8, timeout=10)

    def part(number):
        all_here.wait()
        return number, blas_threads()

    with threadpool_limits(2, "blas"):
        assert list(in_threads(part, range(8))) == [(number, {1}) for number in range(8)]
        assert blas_threads() == {2}


@pytest.mark.parametrize(("cores", "threads"), [(100, 16), (None, 1)])
def test_bounds_the_threads(cores, threads, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)

    def part(_):
        time.sleep(1e-2)
        return threading.get_ident()

    assert len(set(in_threads(part, range(64)))) <= threads


def test_raises_the_error_of_a_part():
    with pytest.raises(ZeroDivisionError):
        list(in_threads(lambda part: 1 / part, [1, 0]))


@pytest.mark.usefixtures("_eight_threads")
def test_no_thread_overwrites_the_counts_of_another(rng, monkeypatch):
    class Slow(np.ndarray):
        def __getitem__(self, key):
            found = super().__getitem__(key)
            time.sleep(random.choice([0, 1e-3]))
            return found

    class Counts(nearest._RowsBefore):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.count = self.count.view(Slow)

    monkeypatch.setattr(nearest, "_RowsBefore", Counts)
    for name in ("_TILE_ROWS", "_TILE_COLUMNS"):
        monkeypatch.setattr(nearest, name, 4)
    x, labels = rng.normal(size=(80, 4)), rng.integers(0, 9, 80)
    expected = retrieval_scores(x, labels, metrics=("mrr", "map"))["mrr"]
    assert mean_reciprocal_rank(x, labels) == expected


@pytest.mark.usefixtures("_eight_threads")
def test_no_thread_overwrites_the_scores_of_another(rng, monkeypatch):
    class Slow(by_distance._Ranker):
        def ranks(self, *arguments):
            time.sleep(1e-2)
            return super().ranks(*arguments)

    x, labels = rng.normal(size=(80, 4)), rng.integers(0, 9, 80)
    expected = map_at_r(x, labels)
    monkeypatch.setattr(by_distance, "_Ranker", Slow)
    monkeypatch.setattr(by_distance, "_BLOCK_ROWS", 5)
    assert map_at_r(x, labels) == expected
