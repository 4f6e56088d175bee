import tracemalloc

import numpy as np
import pytest
import scipy.stats

from tfdml.evaluation import (
    bootstrap_intervals,
    class_averages,
    macro_average,
    paired_bootstrap,
    statistics,
)


def means_by_loops(values, labels, rounds, seed):
    """Means of rounds of drawn classes, each a list of the values of all that were drawn."""
    rng = np.random.default_rng(seed)
    groups = [[q] for q in range(len(values))]
    if labels is not None:
        groups = [[q for q in range(len(labels)) if labels[q] == c] for c in sorted(set(labels))]
    means = []
    for _ in range(rounds):
        drawn = rng.integers(0, len(groups), len(groups))
        queries = [q for group in drawn for q in groups[group]]
        means.append(sum(float(values[q]) for q in queries) / len(queries))
    return means


def simulated(seed, classes):
    """Hits of queries whose chance, uniform over classes, is that of their class; mean 0.5."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), rng.integers(2, 21, classes))
    return (rng.random(len(labels)) < rng.random(classes)[labels]).astype(float), labels


@pytest.fixture
def labels(rng):
    labels = rng.integers(0, 12, 80) + 2**40
    labels[:2] = [-5, 2**62]  # lonely ones
    return labels


@pytest.mark.parametrize("draws_at_once", [1, 50, 2**22])
@pytest.mark.parametrize("by_class", [True, False])
def test_equals_loops(draws_at_once, by_class, labels, rng, monkeypatch):
    monkeypatch.setattr(statistics, "_DRAWS_AT_ONCE", draws_at_once)
    labels = labels.tolist() if by_class else None
    values = {"map": rng.random(80), "recall@1": rng.integers(0, 2, 80).astype(bool)}
    found = bootstrap_intervals(values, labels, confidence=0.8, rounds=60, seed=3)
    for name, interval in found.items():
        means = means_by_loops(values[name], labels, 60, 3)
        assert interval == pytest.approx(np.quantile(means, [0.1, 0.9]), abs=1e-12)
        assert all(type(end) is float for end in interval)


def test_differences_equal_loops(labels, rng):
    a, b = rng.random((2, 80, 2)).round(1)
    names = ("map", "ndcg@10")
    values = dict(zip(names, a.T, strict=True))
    baseline = dict(zip(names[::-1], b.T[::-1], strict=True))
    found = paired_bootstrap(values, baseline, labels, confidence=0.9, rounds=50, seed=1)
    assert list(found) == list(names)
    for column, name in enumerate(names):
        difference = a[:, column] - b[:, column]
        means = np.array(means_by_loops(difference, labels.tolist(), 50, 1))
        low, high = np.quantile(means, [0.05, 0.95])
        p = min(1, 2 * (1 + min(sum(means <= 0), sum(means >= 0))) / 51)
        expected = {"difference": difference.mean(), "low": low, "high": high, "p": p}
        assert found[name] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("classes", "coverage"), [(10, 0.90), (20, 0.93), (50, 0.95)])
def test_holds_the_true_mean_as_often_as_stated(classes, coverage):
    trials, hits = 1000, 0
    for seed in range(trials):
        values, labels = simulated(seed, classes)
        low, high = bootstrap_intervals({"hit": values}, labels, rounds=300, seed=seed)["hit"]
        hits += low <= 0.5 <= high
    assert hits / trials == pytest.approx(
        coverage, abs=3 * (coverage * (1 - coverage) / 1000) ** 0.5
    )


def test_draws_of_queries_are_too_narrow_for_new_classes():
    hits = 0
    for seed in range(200):
        values, _ = simulated(seed, 50)
        low, high = bootstrap_intervals({"hit": values}, rounds=200, seed=seed)["hit"]
        hits += low <= 0.5 <= high
    assert hits < 0.8 * 200


def test_the_difference_is_surer_than_either_score(rng):
    """Two models that find the same classes hard."""
    values, labels = simulated(0, 50)
    better = np.where(rng.random(len(values)) < 0.05, 1.0, values)
    of_one = bootstrap_intervals({"hit": better}, labels)["hit"]
    found = paired_bootstrap({"hit": better}, {"hit": values}, labels)["hit"]
    assert found["high"] - found["low"] < 0.2 * (of_one[1] - of_one[0])
    assert 0 < found["low"] < found["difference"] < found["high"]
    assert found["p"] == 2 / 1001
    reverse = paired_bootstrap({"hit": values}, {"hit": better}, labels)["hit"]
    assert reverse["p"] == found["p"]
    assert reverse["low"] == pytest.approx(-found["high"], abs=1e-12)


def test_p_is_uniform_where_models_do_not_differ():
    below = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        a, b = rng.normal(size=(2, 60))
        found = paired_bootstrap({"x": a}, {"x": b}, rounds=300, seed=seed)["x"]
        excludes = not found["low"] <= 0 <= found["high"]
        assert excludes == (found["p"] < 0.05) or 0.03 < found["p"] < 0.07
        below += found["p"] < 0.2
    assert below / 400 == pytest.approx(0.2, abs=3 * (0.2 * 0.8 / 400) ** 0.5)


def test_agrees_with_scipy_on_queries(rng):
    values = rng.beta(0.5, 0.2, 500)
    expected = scipy.stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=10_000, rng=rng
    )
    found = bootstrap_intervals({"map": values}, rounds=10_000, seed=1)["map"]
    # An end at 2.5% of 10,000 rounds has a standard error of 0.027 standard errors of the mean.
    assert found == pytest.approx(
        expected.confidence_interval, abs=4 * 0.04 * expected.standard_error
    )


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1.0])
@pytest.mark.parametrize("by_class", [True, False])
def test_equal_values_have_no_width(value, by_class, labels):
    values = {"map": np.full(80, value)}
    labels = labels if by_class else None
    assert bootstrap_intervals(values, labels) == {"map": (value, value)}
    found = paired_bootstrap(values, values, labels)
    assert found == {"map": {"difference": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}}


def test_depends_on_the_seed_alone(labels, rng):
    values = {"map": rng.random(80)}
    first = bootstrap_intervals(values, labels)
    assert bootstrap_intervals(values, labels[:, None]) == first
    beside = bootstrap_intervals({"other": values["map"], **values}, labels)["map"]
    assert beside == pytest.approx(first["map"], abs=1e-12)
    assert bootstrap_intervals(values, labels, seed=1) != first


def test_ignores_the_order_of_the_queries(labels, rng):
    order, values = rng.permutation(80), rng.random(80)
    expected = bootstrap_intervals({"map": values}, labels)["map"]
    found = bootstrap_intervals({"map": values[order]}, labels[order])["map"]
    assert found == pytest.approx(expected, abs=1e-12)


def test_keeps_large_class_ids_apart():
    values = {"recall@1": np.array([1.0, 1.0, 0.0, 0.0])}
    ids = np.array([2**60, 2**60, 2**60 + 1, 2**60 + 1])
    assert bootstrap_intervals(values, ids) == {"recall@1": (0.0, 1.0)}
    assert bootstrap_intervals(values, ids.astype(np.uint64) + 2**63)["recall@1"] == (0.0, 1.0)


def test_holds_a_block_of_rounds_at_a_time(rng):
    values = {name: rng.random(60_502) for name in "abcdefghij"}
    tracemalloc.start()
    bootstrap_intervals(values, rng.integers(0, 11_316, 60_502))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6


GOOD = {"map": np.array([0.5, 1.0, 0.25])}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            ([0.5],),
            TypeError,
            "`values` must be a dict of one array per score. Received: values='l",
        ),
        (({},), ValueError, "`values` must hold at least one score. Received: values={}"),
        (({"map": np.zeros((3, 1))},), ValueError, r"shape \(n,\), one value per query.*\(3, 1\)"),
        (({**GOOD, "mrr": np.zeros(2)},), ValueError, r"'map': \(3,\), 'mrr': \(2,\)"),
        (({"map": np.zeros(0)},), ValueError, "`values` must not be empty"),
        (({"map": np.array(["a"])},), TypeError, "`values` must be numbers. Received: values={'m"),
        (({**GOOD, "mrr": [0, np.nan, 1]},), ValueError, r"finite. Received: not_finite=\['mrr'\]"),
        (({"map": np.ones(1)},), ValueError, "two queries or more. Received: queries=1"),
        ((GOOD, np.zeros(3, int)), ValueError, "two classes or more. Received: classes=1"),
        ((GOOD, np.zeros(3)), TypeError, "`labels` must be integers. Received: dtype=float64"),
        ((GOOD, np.zeros(4, int)), ValueError, "the same number of queries. Received: labels=4, v"),
    ],
)
def test_rejects_values_and_labels(arguments, error, message):
    with pytest.raises(error, match=message):
        bootstrap_intervals(*arguments)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"confidence": 1}, "`confidence` must be > 0 and < 1. Received: confidence=1"),
        ({"confidence": np.nan}, "`confidence` must be finite"),
        ({"rounds": 0}, "`rounds` must be an integer >= 1. Received: rounds=0"),
        ({"seed": -1}, "`seed` must be an integer >= 0. Received: seed=-1"),
    ],
)
def test_rejects_options(option, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_intervals(GOOD, **option)
    with pytest.raises(ValueError, match=message):
        paired_bootstrap(GOOD, GOOD, **option)


def test_rejects_pairs_that_do_not_match():
    with pytest.raises(ValueError, match=r"same names. Received: values=\['map'\], baseline=\['m"):
        paired_bootstrap(GOOD, {"mrr": GOOD["map"]})
    with pytest.raises(ValueError, match=r"queries\. Received: values=3, baseline=2"):
        paired_bootstrap(GOOD, {"map": np.zeros(2)})
    with pytest.raises(TypeError, match="`baseline` must be a dict"):
        paired_bootstrap(GOOD, None)


@pytest.mark.parametrize(("rounds", "confidence"), [(39, 0.95), (1, 0.5), (1000, 0.9999)])
def test_rejects_too_few_rounds_for_the_tails(rounds, confidence):
    options = {"rounds": rounds, "confidence": confidence}
    with pytest.raises(ValueError, match="`rounds` must leave 2 or more means outside"):
        bootstrap_intervals({"a": np.arange(4.0)}, **options)
    with pytest.raises(ValueError, match="`rounds` must leave 2 or more means outside"):
        paired_bootstrap({"a": np.arange(4.0)}, {"a": np.zeros(4)}, **options)


def test_by_hand():
    classes, means, counts = class_averages([1.0, 0.0, 0.5, 0.25], np.array([[9], [9], [-4], [9]]))
    assert (classes.tolist(), counts.tolist()) == ([-4, 9], [1, 3])
    assert means.tolist() == [0.5, 1.25 / 3]
    assert macro_average([1.0, 0.0, 0.5, 0.25], [9, 9, -4, 9]) == (0.5 + 1.25 / 3) / 2
    assert type(macro_average([True, False], [1, 1])) is float


def test_averages_equal_loops(rng):
    values, labels = rng.random(200), rng.integers(0, 20, 200) + 2**60
    classes, means, counts = class_averages(values, labels)
    for class_id, mean, count in zip(classes, means, counts, strict=True):
        of_class = [value for value, label in zip(values, labels, strict=True) if label == class_id]
        assert (mean, count) == (pytest.approx(sum(of_class) / len(of_class)), len(of_class))
    assert macro_average(values, labels) == pytest.approx(sum(means) / len(means))


def test_an_average_is_the_plain_mean_for_classes_of_one_size(rng):
    values = rng.random(60)
    assert macro_average(values, np.arange(60) % 12) == pytest.approx(values.mean())


@pytest.mark.parametrize(
    ("values", "labels", "error", "message"),
    [
        ([1.0, 2.0], [1], ValueError, r"one number per label. Received: values.shape=\(2,\)"),
        ([], np.zeros(0, int), ValueError, "`values` must not be empty"),
        ([1.0, np.nan], [1, 2], ValueError, "must be finite. Received: values_not_finite=1"),
        ([1.0], [1.0], TypeError, "`labels` must be integers"),
        (["a"], [1], TypeError, "`values` must be numbers"),
    ],
)
def test_averages_reject_wrong_input(values, labels, error, message):
    with pytest.raises(error, match=message):
        class_averages(values, labels)
