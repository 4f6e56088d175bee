"""Values of the objectives after 2019 that were computed independently, as float64 loops."""

import keras
import numpy as np
import pytest
from backend import value_and_gradient
from keras import ops

from tfdml import losses
from tfdml.layers import ClassProxies

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
    ("circle", {"preset": "published"}, UNEVEN, 199.79562348841472),
]


@pytest.mark.parametrize(("name", "options", "labels", "expected"), CASES)
def test_equals_the_golden_value(name, options, labels, expected):
    loss = losses.get(name, **options)
    np.testing.assert_allclose(float(loss(labels, ROWS)), expected, rtol=1e-7)
    single = ops.convert_to_tensor(ROWS.astype("float32"))
    np.testing.assert_allclose(float(loss(labels, single)), expected, rtol=2e-4)


ANGLES = np.array([[0.4 + 1.1 * c + 1.9 * j + 0.5 * c * j for j in range(4)] for c in range(5)])
PROXIES = np.cos(ANGLES)
CENTERS = np.stack([np.cos(ANGLES), np.cos(ANGLES + 0.8)], axis=1)
OF_PROXIES = [
    ("norm_softmax", {}, 9.556711421940442),
    ("proxy_nca", {}, 8.649996977437219),
    ("proxy_nca", {"variant": "classic"}, 6.304334374287514),
    ("cosface", {}, 49.35286702615652),
    ("arcface", {}, 54.63277964115476),
    ("sub_center_arcface", {"centers": 2}, 58.80720332741919),
    ("soft_triple", {"centers": 2}, 11.033759575215207),
    ("soft_triple", {"centers": 2, "weight": 0.0}, 10.953010876899917),
    ("proxy_anchor", {}, 37.566396744547596),
]


def with_proxies(name, proxies, dtype="float64", **options):
    loss = losses.get(name, num_classes=len(proxies), **options)
    loss.layer = ClassProxies(len(proxies), loss.centers, dtype=dtype)
    loss.layer.build((None, proxies.shape[-1]))
    loss.layer.proxies.assign(proxies)
    return loss


@pytest.mark.parametrize(("name", "options", "expected"), OF_PROXIES)
def test_equals_the_golden_value_of_proxies(name, options, expected):
    proxies = CENTERS if "centers" in options else PROXIES
    loss = with_proxies(name, proxies, **options)
    np.testing.assert_allclose(float(loss(UNEVEN, ROWS)), expected, rtol=1e-7)
    loss = with_proxies(name, proxies, "float32", **options)
    single = ops.convert_to_tensor(ROWS.astype("float32"))
    np.testing.assert_allclose(float(loss(UNEVEN, single)), expected, rtol=2e-4)


def test_a_row_on_its_proxy_or_opposite_keeps_gradients_finite():
    for name, options, _ in OF_PROXIES:
        proxies = CENTERS if "centers" in options else PROXIES
        loss = with_proxies(name, proxies, **options)
        first = proxies.reshape(5, -1, 4)[:, 0]
        for rows in (first[:4], -first[:4]):
            _, gradient = value_and_gradient(loss, np.arange(4), rows)
            assert np.isfinite(gradient).all(), name
            assert np.abs(gradient).max() > 0, name


@pytest.mark.parametrize("name", ["arcface", "sampled_classes", "density"])
def test_ids_beyond_the_classes_are_rejected_and_never_wrap(name):
    loss = with_proxies("arcface", PROXIES)
    if name == "sampled_classes":
        loss = losses.get(name, base=loss, rate=1)
    elif name == "density":
        loss = losses.get(name, initial_density=[0.1] * 5)
    unknown, rows = ops.convert_to_tensor(UNEVEN[:4] + 5), ops.convert_to_tensor(ROWS[:4])
    if keras.backend.backend() != "tensorflow":
        value, gradient = value_and_gradient(loss, unknown, ROWS[:4])
        assert np.isnan(value)
        assert not gradient.any()
        return
    import tensorflow as tf

    with pytest.raises(ValueError, match="from 0 to 4"):
        loss(UNEVEN + 5, ROWS)
    graph = tf.function(lambda labels: loss(labels, rows, training=True))
    for call in (graph, graph.python_function):
        with pytest.raises(tf.errors.InvalidArgumentError, match="labels must be from 0 to 4"):
            call(unknown)
    if name != "arcface":  # the others go its way
        return

    @tf.function(autograph=False, jit_compile=True)
    def compiled(labels, rows):
        with tf.GradientTape() as tape:
            tape.watch(rows)
            value = loss(labels, rows, training=True)
        return value, tape.gradient(value, rows)

    value, gradient = compiled(unknown, rows)
    assert np.isnan(float(value))
    assert not tf.convert_to_tensor(gradient).numpy().any()


@pytest.mark.parametrize(
    ("name", "deviation"),
    [
        ("arcface", 0.01),
        ("cosface", 0.01),
        ("norm_softmax", (1 / 3 / 64) ** 0.5),
        ("proxy_anchor", (2 / 400) ** 0.5),
        ("proxy_nca", 1 / 8),
    ],
)
def test_proxies_start_with_the_lengths_of_the_paper(name, deviation):
    keras.utils.set_random_seed(0)
    loss = losses.get(name, num_classes=400)
    loss.layer.build((None, 64))
    proxies = ops.convert_to_numpy(loss.layer.proxies)
    np.testing.assert_allclose(proxies.std(), deviation, rtol=0.05)


def test_the_number_of_classes_is_needed_and_prepare_counts_it():
    loss = losses.get("proxy_anchor")
    with pytest.raises(ValueError, match="`num_classes`"):
        loss(UNEVEN, ROWS)
    loss.prepare(UNEVEN, embeddings=lambda: ROWS, features=None)
    assert loss.num_classes == 4
    assert np.isfinite(float(loss(UNEVEN, ROWS)))
    with pytest.raises(ValueError, match="Received: num_classes=4, classes=9"):
        loss.prepare(UNEVEN + 5, embeddings=None, features=None)


@pytest.mark.parametrize("name", ["proxy_anchor", "density"])
def test_prepare_rejects_names_with_how_to_convert_them(name):
    with pytest.raises(TypeError, match=r"np\.unique\(labels, .*Received: dtype=<U"):
        losses.get(name).prepare(UNEVEN.astype(str))


def test_logs_state_how_far_the_proxies_turned():
    loss = with_proxies("cosface", np.eye(4))
    assert loss.logs() == {"proxy_degrees": 0.0}
    turned = np.eye(4)
    turned[0] = [1, 1, 0, 0]
    loss.layer.proxies.assign(turned)
    np.testing.assert_allclose(loss.logs()["proxy_degrees"], 45 / 4, rtol=1e-4)


def test_a_tiny_temperature_keeps_the_gradient_of_softmax_losses(rng):
    x = rng.normal(size=(8, 4)).astype("float32")
    for name in ("supcon", "sincere", "ntxent"):
        value, gradient = value_and_gradient(losses.get(name, temperature=1e-3), PAIRS, x)
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 1


def test_sharp_ranks_give_the_true_average_precision(rng):
    x = rng.normal(size=(12, 3))
    labels = np.repeat([0, 1, 2], 4)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    precisions = []
    for query in range(12):
        order = np.argsort(-(unit @ unit[query]))[1:]  # the first is the query itself
        found = labels[order] == labels[query]
        precisions.append(np.mean((np.cumsum(found) / np.arange(1, 12))[found]))
    for name in ("smooth_ap", "roadmap"):
        loss = losses.get(name, temperature=1e-7, **({} if name == "smooth_ap" else SHARP))
        np.testing.assert_allclose(float(loss(labels, x)), 1 - np.mean(precisions), rtol=1e-6)


SHARP = {"calibration": 0.0, "margin": 0.0, "slope": 1e-9, "offset": 1.0}
