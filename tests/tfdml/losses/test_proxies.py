"""Losses over proxies of classes: where the proxies start, how they grow, labels of no class."""

import keras
import numpy as np
import pytest
from backend import value_and_gradient
from keras import ops

from tfdml import losses
from tfdml.layers import ClassProxies

LABELS = np.array([0, 2, 1, 2, 0, 0, 1])


def started(name, rows, labels=LABELS, **options):
    keras.utils.set_random_seed(0)
    loss = losses.get(name, **options)
    loss.prepare(labels, lambda: rows, None)
    return loss


def means_of(rows, initializer):
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    means = [sum(rows[label == LABELS]) / sum(label == LABELS) for label in range(3)]
    centre = sum(means) / 3 if initializer == "centred_class_means" else 0
    return [mean - centre for mean in means]


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def proxies_of(loss):
    return keras.ops.convert_to_numpy(loss.layer.proxies)


@pytest.mark.parametrize("num_classes", [None, 3])
@pytest.mark.parametrize("initializer", ["class_means", "centred_class_means"])
def test_proxies_start_at_the_mean_of_their_class(num_classes, initializer, rng):
    rows = rng.normal(size=(7, 5)) * rng.uniform(1, 9, (7, 1))  # their lengths do not count
    labels = LABELS.astype("uint64")
    options = {"initializer": initializer, "num_classes": num_classes}
    loss = started("arcface", rows, labels, **options)
    restored = type(loss).from_config(loss.get_config())
    assert (restored.initializer, restored.num_classes) == (initializer, 3)
    for proxy, mean in zip(proxies_of(loss), means_of(rows, initializer), strict=True):
        np.testing.assert_allclose(cosine(proxy, mean), 1, atol=1e-5)


@pytest.mark.parametrize("label", [0, 2])
def test_a_single_class_starts_at_its_mean(label, rng):
    rows = rng.normal(size=(4, 5))
    options = {"initializer": "centred_class_means"}
    *_, proxy = proxies_of(started("cosface", rows, np.full(4, label), **options))
    mean = sum(row / np.linalg.norm(row) for row in rows)
    np.testing.assert_allclose(cosine(proxy, mean), 1, atol=1e-5)


@pytest.mark.parametrize(
    "base", [{"name": "cosface"}, {"name": "sampled_classes", "base": "cosface", "rate": 1.0}]
)
def test_the_proxies_of_matryoshka_are_as_wide_as_the_rows_in_any_order(base, rng):
    rows, values = rng.normal(size=(7, 5)).astype("float32"), []
    for dims in ((2, 5), (5, 2)):
        loss = losses.get("matryoshka", base=base, dims=dims)
        keras.utils.set_random_seed(0)
        loss.prepare(LABELS, None, None)
        values.append(float(loss(LABELS, rows)))
    np.testing.assert_allclose(values[0], values[1], rtol=1e-5)


@pytest.mark.parametrize("centers", [1, 3])
def test_a_class_without_images_or_all_of_equal_rows_start_as_published(centers, rng):
    published = started("soft_triple", None, centers=centers, initializer=None)
    published.layer.build((None, 64))
    labels = np.where(LABELS == 1, 0, LABELS)
    loss = started("soft_triple", rng.normal(size=(7, 64)), labels, centers=centers)
    same = np.isclose(proxies_of(loss), proxies_of(published), atol=1e-5)
    assert [rows.all() for rows in same] == [False, True, False]
    lengths, expected = (np.linalg.norm(proxies_of(each), axis=-1) for each in (loss, published))
    np.testing.assert_allclose(lengths, expected, rtol=1e-5)
    loss = started("soft_triple", np.ones((7, 64), "float32"), centers=centers)
    np.testing.assert_allclose(proxies_of(loss), proxies_of(published), rtol=1e-3, atol=1e-4)


def test_several_centers_surround_the_mean(rng):
    rows = rng.normal(size=(7, 64))
    loss = started("soft_triple", rows, centers=3)
    proxies = proxies_of(loss)
    proxies = proxies / np.linalg.norm(proxies, axis=-1, keepdims=True)
    for centers, mean in zip(proxies, means_of(rows, loss.initializer), strict=True):
        degrees = np.degrees(np.arccos(centers @ mean / np.linalg.norm(mean)))
        assert (degrees > 4).all()
        assert (degrees < 7).all()
    again = started("soft_triple", rows, centers=3)
    np.testing.assert_array_equal(proxies_of(again), proxies_of(loss))


RNG = np.random.default_rng(0)
ROWS, PROXIES, CENTERS = (RNG.normal(size=shape) for shape in ((8, 4), (5, 4), (5, 2, 4)))
UNEVEN = np.array([0, 0, 0, 1, 1, 2, 2, 3])  # a class of one row, and of five classes one absent
OF_PROXIES = ("norm_softmax", "proxy_nca", "cosface", "arcface", "proxy_anchor")
OF_CENTERS = ("sub_center_arcface", "soft_triple")


def with_proxies(name, proxies, **options):
    loss = losses.get(name, num_classes=len(proxies), **options)
    loss.layer = ClassProxies(len(proxies), loss.centers, dtype="float64")
    loss.layer.build((None, proxies.shape[-1]))
    loss.layer.proxies.assign(proxies)
    return loss


def test_a_row_on_its_proxy_or_opposite_keeps_gradients_finite():
    for name in OF_PROXIES + OF_CENTERS:
        proxies, options = (CENTERS, {"centers": 2}) if name in OF_CENTERS else (PROXIES, {})
        loss = with_proxies(name, proxies, **options)
        first = proxies.reshape(5, -1, 4)[:, 0]
        for rows in (first[:4], -first[:4]):
            _, gradient = value_and_gradient(loss, np.arange(4), rows)
            assert np.isfinite(gradient).all(), name
            assert np.abs(gradient).max() > 0, name


@pytest.mark.parametrize("name", ["arcface", "sampled_classes"])
def test_ids_beyond_the_classes_are_rejected_and_never_wrap(name):
    loss = with_proxies("arcface", PROXIES)
    if name == "sampled_classes":
        loss = losses.get(name, base=loss, rate=1)
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


def test_logs_state_how_far_the_proxies_turned():
    loss = with_proxies("cosface", np.eye(4))
    assert loss.logs() == {"proxy_degrees": 0.0}
    turned = np.eye(4)
    turned[0] = [1, 1, 0, 0]
    loss.layer.proxies.assign(turned)
    np.testing.assert_allclose(loss.logs()["proxy_degrees"], 45 / 4, rtol=1e-4)
