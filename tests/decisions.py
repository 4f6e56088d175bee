"""Decisions between ten classes and none, and their numbers compared."""

import numpy as np

from tfdml import evaluation
from tfdml.evaluation import open_set

LABELS = np.repeat(np.arange(10), 6)
NAMES = [f"class {label}" for label in range(10)]
CALIBRATIONS = [open_set.Platt(3.0, 2.0), open_set.Isotonic(np.array([-2, -0.5]), [0.1, 0.9])]


def decision_of(method, rows, calibration, asked):
    """A decision by rows, of which half of those asked are known, with different probabilities."""
    decision = evaluation.open_set_decision(rows, LABELS, NAMES, false_alarm_rate=0.1)
    rule = open_set.OpenSetRule.fitted(rows, LABELS, method)
    scores = rule(asked)[1]
    points = calibration
    if isinstance(calibration, open_set.Isotonic):
        points = open_set.Isotonic(np.quantile(scores, [0.2, 0.6, 0.9]), np.array([0.1, 0.5, 0.9]))
    return decision._replace(rule=rule, calibration=points, threshold=float(np.median(scores)))


def check_equal(found, expected):
    """Asserts that decisions are those of the evaluation, but where rounding decides."""
    for name in ("score", "probability"):
        np.testing.assert_allclose(found[name], expected[name], atol=2e-5, rtol=1e-4)
    sure = np.abs(expected["score"] - np.median(expected["score"])) > 1e-3
    for name in ("class_id", "known"):
        np.testing.assert_array_equal(np.asarray(found[name])[sure], expected[name][sure])
