import keras
import numpy as np
import pytest

from tfdml import losses

LABELS = np.array([0, 2, 1, 2, 0, 0, 1])


def started(name, rows, **options):
    keras.utils.set_random_seed(0)
    loss = losses.get(name, **options)
    loss.prepare(LABELS, lambda: rows, None)
    return loss


def proxies_of(loss):
    return keras.ops.convert_to_numpy(loss.layer.proxies)


@pytest.mark.parametrize("name", ["proxy_anchor", "arcface", "norm_softmax", "proxy_nca"])
@pytest.mark.parametrize("num_classes", [None, 3])
def test_proxies_start_in_the_direction_of_the_mean_of_their_class(name, num_classes, rng):
    rows = rng.normal(size=(7, 5)) * rng.uniform(1, 9, (7, 1))  # their lengths do not count
    loss = started(name, rows, initializer="class_means", num_classes=num_classes)
    for label, proxy in enumerate(proxies_of(loss)):
        mean = sum(row / np.linalg.norm(row) for row in rows[label == LABELS])
        cosine = proxy @ mean / np.linalg.norm(mean) / np.linalg.norm(proxy)
        np.testing.assert_allclose(cosine, 1, atol=1e-5)


def test_the_lengths_are_those_of_the_published_start(rng):
    rows = rng.normal(size=(7, 64))
    lengths = np.linalg.norm(
        proxies_of(started("proxy_anchor", rows, initializer="class_means")), axis=1
    )
    np.testing.assert_allclose(lengths, np.sqrt(64 * 2 / 3), rtol=0.4)


def test_several_centers_surround_the_mean(rng):
    rows = rng.normal(size=(7, 64))
    loss = started("soft_triple", rows, centers=3, initializer="class_means")
    proxies = proxies_of(loss)
    proxies = proxies / np.linalg.norm(proxies, axis=-1, keepdims=True)
    for label, centers in enumerate(proxies):
        mean = sum(row / np.linalg.norm(row) for row in rows[label == LABELS])
        degrees = np.degrees(np.arccos(centers @ mean / np.linalg.norm(mean)))
        assert (degrees > 4).all()
        assert (degrees < 7).all()
    again = started("soft_triple", rows, centers=3, initializer="class_means")
    np.testing.assert_array_equal(proxies_of(again), proxies_of(loss))


def test_a_loss_within_another_starts_at_the_means_too(rng):
    rows = rng.normal(size=(7, 5))
    base = {"name": "cosface", "initializer": "class_means"}
    inner = started("sampled_classes", rows, base=base).base
    alone = started("cosface", rows, initializer="class_means")
    np.testing.assert_array_equal(proxies_of(inner), proxies_of(alone))


def test_the_start_is_an_option_that_is_kept(rng):
    loss = started("proxy_anchor", rng.normal(size=(7, 5)), initializer="class_means")
    restored = type(loss).from_config(loss.get_config())
    assert (restored.initializer, restored.num_classes) == ("class_means", 3)
