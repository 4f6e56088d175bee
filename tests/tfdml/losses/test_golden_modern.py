"""Values of the objectives after 2019 that were computed independently, as float64 loops."""

import numpy as np
import pytest
from keras import ops

from tfdml import losses

ROWS = np.array([[np.sin(1 + 1.7 * i + 2.3 * j + 0.9 * i * j) for j in range(4)] for i in range(8)])
UNEVEN = np.array([0, 0, 0, 1, 1, 2, 2, 3])  # a class of one row, and of five classes one absent
PAIRS = np.array([0, 0, 1, 1, 2, 2, 3, 3])
CASES = [
    ("multi_similarity", {"threshold": 1.0, "epsilon": None}, UNEVEN, 1.4730807434821673),
    ("multi_similarity", {"epsilon": None}, UNEVEN, 1.1426383001641798),
    ("multi_similarity", {"beta": 40.0, "epsilon": None}, UNEVEN, 1.1430126284749123),
    ("multi_similarity", {}, UNEVEN, 1.1043751086163416),
    ("multi_similarity", {"beta": 40.0}, UNEVEN, 1.1047494224492347),
    ("supcon", {}, UNEVEN, 9.10910175088907),
    ("supcon", {"temperature": 0.07}, UNEVEN, 12.775974955773096),
    ("sincere", {"temperature": 0.1}, UNEVEN, 9.105388340726007),
    ("ntxent", {}, UNEVEN, 12.832088061558295),
    ("recall_at_k", {"k": (1, 2, 4)}, PAIRS, 0.9097037668973021),
    ("recall_at_k", {"k": (1, 2, 4), "rank_self": True}, PAIRS, 0.957006347239987),
    ("smooth_ap", {}, PAIRS, 0.8164009071243408),
    ("smooth_ap", {"rank_self": True}, PAIRS, 0.3461362566916678),
    ("roadmap", {"calibration": 0.0}, PAIRS, 0.9935103161444307),
    ("roadmap", {"calibration": 0.0, "rank_self": True}, PAIRS, 0.49360603438671136),
    ("circle", {}, UNEVEN, 199.79562348841472),
]


@pytest.mark.parametrize(("name", "options", "labels", "expected"), CASES)
def test_equals_the_golden_value(name, options, labels, expected):
    loss = losses.get(name, **options)
    np.testing.assert_allclose(float(loss(labels, ROWS)), expected, rtol=1e-7)
    single = ops.convert_to_tensor(ROWS.astype("float32"))
    np.testing.assert_allclose(float(loss(labels, single)), expected, rtol=2e-4)


def test_two_rows_per_class_make_supcon_sincere_and_ntxent_one():
    values = [
        float(losses.get(name, temperature=0.3)(PAIRS, ROWS))
        for name in ("supcon", "sincere", "ntxent")
    ]
    np.testing.assert_allclose(values, values[0], rtol=1e-12)


def test_a_tiny_temperature_keeps_the_gradient_of_softmax_losses(rng):
    from backend import value_and_gradient

    x = rng.normal(size=(8, 4)).astype("float32")
    for name in ("supcon", "sincere", "ntxent"):
        value, gradient = value_and_gradient(losses.get(name, temperature=1e-3), PAIRS, x)
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 1


def test_sharp_ranks_give_the_true_average_precision(rng):
    x = rng.normal(size=(12, 3))
    labels = np.repeat([0, 1, 2], 4)
    from sklearn.metrics import average_precision_score

    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    precisions = []
    for query in range(12):
        others = np.arange(12) != query
        same = labels[others] == labels[query]
        precisions.append(average_precision_score(same, (unit @ unit[query])[others]))
    for name in ("smooth_ap", "roadmap"):
        loss = losses.get(name, temperature=1e-7, **({} if name == "smooth_ap" else SHARP))
        np.testing.assert_allclose(float(loss(labels, x)), 1 - np.mean(precisions), rtol=1e-6)


SHARP = {"calibration": 0.0, "margin": 0.0, "slope": 1e-9, "offset": 1.0}
