import numpy as np
import pytest
from small_runs import completed

from tfdml.runs.learning_rate import learning_rate


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({}, [1e-3, 5e-4, 0]),
        ({"schedule": "constant"}, [1e-3, 1e-3, 1e-3]),
        ({"warmup_steps": 500}, [0, 1e-3, 0]),
        ({"warmup_steps": 500, "schedule": "constant"}, [0, 1e-3, 1e-3]),
    ],
)
def test_the_learning_rate_rises_and_falls(settings, rates):
    schedule = learning_rate(completed(steps=1000, checkpoint_every=100, **settings))
    found = [float(schedule(step)) for step in (0, 500, 1000)]
    np.testing.assert_allclose(found, rates, atol=1e-8)


def test_the_learning_rate_falls_in_steps():
    settings = {"steps": 1000, "checkpoint_every": 100, "schedule": "step", "decay_every": 400}
    schedule = learning_rate(completed(**settings))
    found = [float(schedule(step)) for step in (0, 399, 400, 799, 800)]
    np.testing.assert_allclose(found, [1e-3, 1e-3, 1e-4, 1e-4, 1e-5], rtol=1e-5)
    schedule = learning_rate(completed(**settings, decay_factor=0.96))
    assert float(schedule(999)) == pytest.approx(1e-3 * 0.96**2)
