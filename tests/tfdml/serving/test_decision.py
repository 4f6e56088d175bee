import numpy as np
import pytest
from decisions import CALIBRATIONS, LABELS, check_equal, decision_of

from tfdml.evaluation import open_set
from tfdml.serving.decision import Decision


def rows_of(seed, dim=6):
    rng = np.random.default_rng(seed)
    centres = 2 * np.random.default_rng(0).normal(size=(10, dim))[LABELS]
    return (centres + rng.normal(size=(60, dim))).astype(np.float32)


@pytest.mark.parametrize("method", open_set.METHODS)
@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_decides_as_the_evaluation_does(method, calibration):
    asked = rows_of(3)
    decision = decision_of(method, rows_of(1), calibration, asked)
    expected = decision(asked)
    assert 0 < expected["known"].mean() < 1
    layer = Decision(decision)
    check_equal(layer(asked), expected)
    assert layer.stated["method"] == method
    assert layer.stated["threshold"] == decision.threshold


def test_rows_beyond_float32_are_rejected():
    decision = decision_of("nearest", rows_of(1), CALIBRATIONS[0], rows_of(3))
    rule = decision.rule._replace(rows=decision.rule.rows * 1e300)
    with pytest.raises(ValueError, match="`embeddings` must be finite"):
        Decision(decision._replace(rule=rule))
