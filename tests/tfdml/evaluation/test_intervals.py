import tracemalloc

import numpy as np
import pytest

from tfdml.evaluation import bootstrap_intervals, class_averages, macro_average, paired_bootstrap

GOOD = {"map": np.array([0.5, 1.0, 0.25])}


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
    return np.array(means)


def simulated(seed, classes):
    """Hits of queries whose chance, uniform over classes, is that of their class; mean 0.5."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), rng.integers(2, 21, classes))
    return (rng.random(len(labels)) < rng.random(classes)[labels]).astype(float), labels


@pytest.fixture
def labels(rng):
    labels = rng.integers(0, 12, 80) + 2**60  # which float64 does not tell apart
    labels[:2] = [-5, 2**62]  # lonely ones
    return labels


@pytest.mark.parametrize("by_class", [True, False])
def test_equals_loops(by_class, labels, rng):
    labels = labels.tolist() if by_class else None
    values = {"map": rng.random(80), "recall@1": rng.random(80) < 0.5}
    baseline = {"recall@1": rng.random(80) < 0.5, "map": rng.random(80)}
    options = {"confidence": 0.8, "rounds": 60, "seed": 3}
    intervals = bootstrap_intervals(values, labels, **options)
    differences = paired_bootstrap(values, baseline, labels, **options)
    assert list(intervals) == list(differences) == list(values)
    for name, interval in intervals.items():
        means = means_by_loops(values[name], labels, 60, 3)
        assert interval == pytest.approx(np.quantile(means, [0.1, 0.9]), abs=1e-12)
        assert all(type(end) is float for end in interval)
        difference = values[name].astype(float) - baseline[name]
        means = means_by_loops(difference, labels, 60, 3)
        low, high = np.quantile(means, [0.1, 0.9])
        p = min(1, 2 * (1 + min(sum(means <= 0), sum(means >= 0))) / 61)
        expected = {"difference": difference.mean(), "low": low, "high": high, "p": p}
        assert differences[name] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("classes", "share", "trials"),
    [
        (10, 0.90, 60),
        pytest.param(10, 0.90, 1000, marks=pytest.mark.slow),
        pytest.param(20, 0.93, 1000, marks=pytest.mark.slow),
        pytest.param(50, 0.95, 1000, marks=pytest.mark.slow),
    ],
)
def test_holds_the_true_mean_as_often_as_stated(classes, share, trials):
    by_class, by_query = np.zeros(trials), np.zeros(trials)
    for seed in range(trials):
        values, labels = simulated(seed, classes)
        for held, groups in ((by_class, labels), (by_query, None)):
            ends = bootstrap_intervals({"hit": values}, groups, rounds=200, seed=seed)
            held[seed] = ends["hit"][0] <= 0.5 <= ends["hit"][1]
    error = (share * (1 - share) / trials) ** 0.5
    assert by_class.mean() == pytest.approx(share, abs=3 * error)
    assert by_query.mean() < 0.8


@pytest.mark.parametrize(("value", "by_class"), [(0.0, True), (0.1, False), (1 / 3, True)])
def test_equal_values_have_no_width(value, by_class, labels):
    values, labels = {"map": np.full(80, value)}, labels if by_class else None
    assert bootstrap_intervals(values, labels) == {"map": (value, value)}
    found = paired_bootstrap(values, values, labels)
    assert found == {"map": {"difference": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}}


def test_depends_on_the_seed_and_not_on_the_order_of_queries_or_scores(labels, rng):
    values, order = rng.random(80), rng.permutation(80)
    first = bootstrap_intervals({"map": values}, labels)
    assert bootstrap_intervals({"map": values}, labels[:, None]) == first
    assert bootstrap_intervals({"map": values}, labels, seed=1) != first
    other = bootstrap_intervals({"other": order, "map": values[order]}, labels[order])
    assert other["map"] == pytest.approx(first["map"], abs=1e-12)


def test_draws_many_queries_in_blocks_of_rounds(rng):
    values = {name: rng.random(60_502) for name in "abcdefghij"}
    tracemalloc.start()
    found = bootstrap_intervals(values, rounds=40, seed=2)["c"]
    assert tracemalloc.get_traced_memory()[1] < 150e6
    tracemalloc.stop()
    drawn = np.random.default_rng(2).integers(0, 60_502, (40, 60_502))
    expected = np.quantile(values["c"][drawn].mean(axis=1), [0.025, 0.975])
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ([[0.5]], TypeError, "`values` must be a dict of one array per score. Received: values='l"),
        ([{}], ValueError, r"`values` must hold scores of shape \(n,\).*Received: values={}"),
        (
            [{"map": np.zeros((3, 1))}],
            ValueError,
            r"one value per query.*{'map': \('float64', \(3, 1\)\)}",
        ),
        ([{**GOOD, "mrr": np.zeros(2)}], ValueError, r"\(3,\)\), 'mrr': \('float64', \(2,\)\)"),
        ([{"map": np.zeros(0)}], ValueError, r"n >= 1. Received: .* \(0,\)\)}"),
        ([{"map": ["a"]}], TypeError, "`values` must be numbers. Received: values={'m"),
        ([{**GOOD, "mrr": [0, np.nan, 1]}], ValueError, r"finite. Received: not_finite=\['mrr'\]"),
        ([{"map": np.ones(1)}], ValueError, "two queries or more. Received: queries=1"),
        ([GOOD, np.zeros(3, int)], ValueError, "two classes or more. Received: classes=1"),
        ([GOOD, np.zeros(3)], TypeError, "`labels` must be integers. Received: dtype=float64"),
        ([GOOD, np.zeros(4, int)], ValueError, "number of queries. Received: labels=4, values=3"),
    ],
)
def test_rejects_values_and_labels(arguments, error, message):
    with pytest.raises(error, match=message):
        bootstrap_intervals(*arguments)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"confidence": 1}, ValueError, "must be > 0 and < 1. Received: confidence=1"),
        ({"confidence": np.nan}, ValueError, "`confidence` must be finite"),
        ({"rounds": 0}, ValueError, "`rounds` must be an integer >= 1. Received: rounds=0"),
        ({"seed": -1}, ValueError, "`seed` must be an integer >= 0. Received: seed=-1"),
        ({"rounds": 39}, ValueError, "leave 2 or more means .* rounds=39, confidence=0.95"),
        ({"confidence": 0.9999}, ValueError, "leave 2 or more means outside of the interval"),
        ({"baseline": {"x": GOOD["map"]}}, ValueError, r"same names .* baseline=\['x'\]"),
        ({"baseline": {"map": np.zeros(2)}}, ValueError, r"queries\. Rec.* queries=\(3, 2\)"),
        ({"baseline": None}, TypeError, "`baseline` must be a dict"),
    ],
)
def test_rejects_options(options, error, message):
    with pytest.raises(error, match=message):
        paired_bootstrap(GOOD, **{"baseline": GOOD, **options})


def test_averages_equal_loops(rng):
    values, labels = rng.random(200), rng.integers(0, 20, (200, 1)) + 2**60
    classes, means, counts = class_averages(values, labels)
    members = [values[labels[:, 0] == one] for one in sorted(set(labels.ravel().tolist()))]
    assert classes.tolist() == sorted(set(labels.ravel().tolist()))
    assert means == pytest.approx([sum(of) / len(of) for of in members])
    assert counts.tolist() == [len(of) for of in members]
    assert macro_average(values, labels) == pytest.approx(sum(means) / len(means))
    assert type(macro_average([True, False], [1, 1])) is float
    with pytest.raises(ValueError, match=r"queries\. Received: labels=1, values=2"):
        class_averages([1.0, 2.0], [1])
