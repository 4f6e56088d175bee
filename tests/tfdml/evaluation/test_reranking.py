import warnings

import numpy as np
import pytest

from tfdml.evaluation import (
    exact_and_reranked_recall,
    recall_after_reranking,
    recall_at_k,
    reranked_neighbours,
    reranking,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*(have no other row|collapsed)")


def brute_force(x, labels, k, table, candidates, gallery=None, gallery_labels=None):
    """Reranking as loops; both orders break ties against the query."""
    own = gallery is None
    gallery, gallery_labels = (x, labels) if own else (gallery, gallery_labels)
    hits = dict.fromkeys(k, 0)
    for q in range(len(x)):
        near = sorted(
            (float(np.sum((gallery[j] - x[q]) ** 2)), bool(gallery_labels[j] == labels[q]), j)
            for j in range(len(gallery))
            if not (own and j == q)
        )[:candidates]
        ranked = sorted((-float(table[q, j]), relevant) for _, relevant, j in near)
        for count in k:
            hits[count] += any(relevant for _, relevant in ranked[:count])
    return {count: hits[count] / len(x) for count in k}


def looked_up(table):
    """A similarity that reads its scores from a table; the first coordinate is the place in it."""
    return lambda a, b: table[np.rint(a[:, 0]).astype(int), np.rint(b[:, 0]).astype(int)]


def placed(x):
    """Rows with their number as the first coordinate, far too small to change a distance's order.

    It is scaled back by `numbered`.
    """
    return np.concatenate([1e-9 * np.arange(len(x))[:, None], x], axis=1)


def numbered(similarity):
    def scores(a, b):
        return similarity(1e9 * a[:, :1], 1e9 * b[:, :1])

    return scores


@pytest.fixture(params=[(13, 100), (61, 700), (8192, 2**20)], ids=str)
def _sizes(request, monkeypatch):
    monkeypatch.setattr(reranking, "_PAIRS_AT_ONCE", request.param[0])
    monkeypatch.setattr(reranking, "_CANDIDATES_AT_ONCE", request.param[1])


def test_reorders_the_candidates_and_no_others():
    line, labels = np.array([[0.0], [1.0], [3.0], [7.0]]), np.array([0, 1, 1, 0])
    # By the product as score. 0: candidates 1 3, none relevant. 1: candidates 0 3, scores 0 3, hit.
    # 3: candidates 1 0, scores 3 0, hit. 7: candidates 3 1, none relevant.
    options = {"similarity": lambda a, b: (a * b)[:, 0], "k": (1, 2), "candidates": 2}
    assert recall_after_reranking(line, labels, **options) == {1: 0.5, 2: 0.5}
    # With all three. 0: all scores 0, ties: rank 2. 1: 7 before 3: rank 1. 3: 7 before 1: rank 1.
    # 7: 3 1 0: rank 2.
    options = {**options, "k": (1, 2, 3), "candidates": 3}
    assert recall_after_reranking(line, labels, **options) == {1: 0.0, 2: 0.5, 3: 1.0}


@pytest.mark.usefixtures("_sizes")
@pytest.mark.parametrize("kind", ["spread", "ties", "equal"])
def test_equals_brute_force(kind, rng):
    table = {
        "spread": rng.normal(size=(60, 60)),
        "ties": rng.integers(0, 3, (60, 60)),
        "equal": np.full((60, 60), 0.5),
    }[kind]
    x, labels = placed(rng.normal(size=(60, 3))), rng.integers(0, 9, 60) + 2**60
    labels[:3] = [1, 2, 2**62]  # lonely ones
    for k, candidates in [((1, 2, 5), 5), ((3,), 20), ((1, 59), 59)]:
        options = {"candidates": candidates, "similarity": numbered(looked_up(table))}
        expected = brute_force(x, labels, k, table, candidates)
        assert recall_after_reranking(x, labels, k, **options) == expected


@pytest.mark.usefixtures("_sizes")
@pytest.mark.parametrize("candidates", [5, 40])
def test_equals_brute_force_in_a_gallery(candidates, rng):
    table, k = rng.integers(0, 5, (30, 40)), (1, 2, 5)
    x, gallery = placed(rng.normal(size=(30, 3))), placed(rng.normal(size=(40, 3)))
    labels, gallery_labels = rng.integers(0, 9, 30), rng.integers(0, 8, 40)
    options = {"gallery_embeddings": gallery, "gallery_labels": gallery_labels}
    options |= {"candidates": candidates, "similarity": numbered(looked_up(table))}
    expected = brute_force(x, labels, k, table, candidates, gallery, gallery_labels)
    assert recall_after_reranking(x, labels, k, **options) == expected


def test_all_rows_as_candidates_give_the_exact_ranking(rng):
    from tfdml.layers import PDDM

    x, labels = rng.normal(size=(300, 8)).astype("float32"), rng.integers(0, 30, 300)
    layer = PDDM(seed=0)
    expected = recall_at_k(x, labels, similarity=layer.matrix)
    assert recall_after_reranking(x, labels, candidates=299, similarity=layer) == expected
    exact, reranked = exact_and_reranked_recall(x, labels, candidates=8, similarity=layer)
    assert exact == expected
    assert reranked == recall_after_reranking(x, labels, candidates=8, similarity=layer) != expected


def test_its_own_order_gives_the_ranking_by_distance(rng):
    x, labels = rng.normal(size=(200, 4)), rng.integers(0, 30, 200)
    scores = recall_after_reranking(
        x, labels, candidates=20, similarity=lambda a, b: -np.square(a - b).sum(axis=1)
    )
    assert scores == recall_at_k(x, labels)


@pytest.mark.parametrize("in_gallery", [False, True])
def test_a_sample_is_asked_exactly_and_after_reranking(in_gallery, rng, monkeypatch):
    monkeypatch.setattr(reranking, "_PAIRS_AT_ONCE", 61)
    monkeypatch.setattr(reranking, "_CANDIDATES_AT_ONCE", 700)
    x, labels = rng.normal(size=(80, 3)), rng.integers(0, 9, 80)
    gallery = (
        {"gallery_embeddings": x[40:] + 1, "gallery_labels": labels[40:]} if in_gallery else {}
    )
    options = {"k": (1, 3), "similarity": lambda a, b: np.cos(a * b).sum(axis=1)}
    exact, reranked = exact_and_reranked_recall(
        x, labels, candidates=5, queries=30, seed=1, **gallery, **options
    )
    sample = np.random.default_rng(1).choice(80, 30, replace=False)
    hits = {5: [], len(gallery.get("gallery_labels", x)) - (not in_gallery): []}
    for candidates, found in hits.items():
        for q in sample:
            others = np.arange(80) != q
            one = gallery or {"gallery_embeddings": x[others], "gallery_labels": labels[others]}
            found.append(
                recall_after_reranking(x[[q]], labels[[q]], candidates=candidates, **one, **options)
            )
    for scores, found in zip((reranked, exact), hits.values(), strict=True):
        for count in (1, 3):
            assert scores[count] == pytest.approx(np.mean([one[count] for one in found]))


def test_the_sample_follows_its_seed(rng):
    x, labels = rng.normal(size=(300, 3)), rng.integers(0, 30, 300)
    options = {"similarity": lambda a, b: (a * b).sum(axis=1), "candidates": 20, "queries": 50}
    several = [exact_and_reranked_recall(x, labels, seed=seed, **options) for seed in (0, 0, 1, 2)]
    assert several[0] == several[1]
    assert len({str(scores) for scores in several}) > 1


@pytest.mark.parametrize("value", [0.0, 0.3])
def test_ties_never_help(value, rng):
    # Sorted by class, so that the first rows are relevant to the first queries.
    collapsed, labels = np.full((300, 8), value, "float32"), np.arange(300) // 60
    scores = recall_after_reranking(
        collapsed, labels, k=(1, 8), candidates=20, similarity=lambda a, b: (a * b).sum(axis=1)
    )
    assert scores == {1: 0.0, 8: 0.0}


def test_leaves_out_the_query_by_index_and_keeps_its_duplicates(rng):
    x, labels = np.repeat(rng.normal(size=(40, 4)), 2, axis=0), np.repeat(np.arange(40), 2)
    scores = recall_after_reranking(
        x, labels, k=1, candidates=3, similarity=lambda a, b: -abs(a - b).sum(axis=1)
    )
    assert scores == {1: 1.0}
    assert recall_after_reranking(
        x, np.arange(80), k=1, candidates=3, similarity=lambda a, b: -abs(a - b).sum(axis=1)
    ) == {1: 0.0}


def test_asks_for_a_bounded_number_of_pairs(rng, monkeypatch):
    x, labels, sizes = rng.normal(size=(90, 3)), rng.integers(0, 9, 90), []

    def similarity(a, b):
        sizes.append(len(a))
        assert a.shape == b.shape
        return a[:, 0]

    monkeypatch.setattr(reranking, "_PAIRS_AT_ONCE", 64)
    recall_after_reranking(x, labels, candidates=20, similarity=similarity)
    assert max(sizes) == 64
    assert sum(sizes) == 90 * 20
    sizes.clear()
    exact_and_reranked_recall(x, labels, candidates=20, queries=10, similarity=similarity)
    assert max(sizes) == 64
    assert sum(sizes) == 10 * (90 + 20)


def test_reports_queries_without_a_relevant_row():
    warnings.simplefilter("default")
    rows, labels = np.array([[0.0], [0.1], [9.0]]), np.array([0, 0, 1])
    options = {"k": 1, "candidates": 2, "similarity": lambda a, b: -abs(a - b)[:, 0]}
    with pytest.warns(UserWarning, match="1 of 3 queries have no other row") as reported:
        assert recall_after_reranking(rows, labels, **options) == {1: 2 / 3}
    assert reported[0].filename == __file__
    # A relevant row that is no candidate is a miss, but nothing to warn of.
    rows, labels = np.array([[0.0], [0.1], [9.0], [9.1]]), np.array([0, 1, 0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert recall_after_reranking(rows, labels, **{**options, "candidates": 1}) == {1: 0.0}


@pytest.mark.parametrize("score", [recall_after_reranking, exact_and_reranked_recall])
def test_says_where_all_scores_are_equal(score, rng, monkeypatch):
    monkeypatch.setattr(reranking, "_CANDIDATES_AT_ONCE", 100)
    x, labels = rng.normal(size=(40, 2)), np.arange(40) // 2

    def reported(similarity):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            score(x, labels, candidates=20, similarity=similarity)
        return {(str(warning.message), warning.filename) for warning in caught}

    equal = "`similarity` may have collapsed: its best scores are all equal, 0.25"
    assert reported(lambda a, b: np.full(len(a), 0.25)) == {(equal, __file__)}
    assert not reported(lambda a, b: np.where(a[:, 0] == x[7, 0], 0.5, 0.25))


X, Y = np.ones((8, 5)), np.arange(8) // 2
GOOD = {"similarity": lambda a, b: a[:, 0], "candidates": 4, "k": 1}


@pytest.mark.parametrize("score", [recall_after_reranking, exact_and_reranked_recall])
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"similarity": None}, TypeError, "`similarity` must be a callable. Received: simil"),
        ({"similarity": lambda a, b: a @ b.T}, ValueError, r"must return shape \(\d+,\)"),
        ({"similarity": lambda a, b: a[:, 0] * np.nan}, ValueError, "finite scores. Received: sc"),
        ({"candidates": 0}, ValueError, "`candidates` must be an integer >= 1"),
        ({"candidates": 8}, ValueError, "`candidates` must not exceed.*gallery_size=7"),
        ({"k": 5}, ValueError, "`k` must not exceed `candidates`. Received: k=5, candidates=4"),
        ({"k": 0}, ValueError, "`k` must be positive integers"),
        ({"gallery_labels": Y}, ValueError, "must be given together"),
    ],
)
def test_rejects_wrong_input(score, options, error, message):
    with pytest.raises(error, match=message):
        score(X, Y, **{**GOOD, **options})


@pytest.mark.parametrize("options", [{"queries": 0}, {"seed": -1}])
def test_rejects_a_wrong_sample(options):
    with pytest.raises(ValueError, match=f"`{next(iter(options))}` must be an integer >="):
        exact_and_reranked_recall(X, Y, **GOOD, **options)


def test_reranked_neighbours_equal_loops_with_ties(rng, monkeypatch):
    monkeypatch.setattr(reranking, "_PAIRS_AT_ONCE", 7)
    x = rng.integers(0, 4, (30, 2)).astype(np.float64)
    found = reranked_neighbours(
        x, 3, similarity=lambda a, b: np.round(a[:, 0] * b[:, 1]), candidates=6
    )
    for q in range(30):
        near = sorted((float(np.sum((x[j] - x[q]) ** 2)), j) for j in range(30) if j != q)[:6]
        ranked = sorted((-x[q, 0] * x[j, 1], place) for place, (_, j) in enumerate(near))
        assert found[q].tolist() == [near[place][1] for _, place in ranked[:3]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 3, "candidates": 2}, "`k` must not exceed `candidates`"),
        ({"k": 0}, "`k` must be an integer >= 1"),
        ({"k": 1, "candidates": 5}, "`candidates` must"),
    ],
)
def test_reranked_neighbours_reject_numbers_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        reranked_neighbours(
            np.eye(5), similarity=lambda a, b: a[:, 0], **{"candidates": 4, **options}
        )
