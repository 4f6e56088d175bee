import keras
import numpy as np
import pytest

from tfdml import losses

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


@pytest.mark.parametrize("name", ["proxy_anchor", "arcface", "norm_softmax", "proxy_nca"])
@pytest.mark.parametrize("num_classes", [None, 3])
@pytest.mark.parametrize("initializer", ["class_means", "centred_class_means"])
def test_proxies_start_at_the_mean_of_their_class(name, num_classes, initializer, rng):
    rows = rng.normal(size=(7, 5)) * rng.uniform(1, 9, (7, 1))  # their lengths do not count
    loss = started(name, rows, initializer=initializer, num_classes=num_classes)
    for proxy, mean in zip(proxies_of(loss), means_of(rows, initializer), strict=True):
        np.testing.assert_allclose(cosine(proxy, mean), 1, atol=1e-5)


def test_centred_proxies_of_nearly_parallel_rows_start_far_apart(rng):
    rows = 100 * np.eye(10)[0] + rng.normal(size=(7, 10))
    a, b, c = proxies_of(started("arcface", rows))
    assert max(cosine(a, b), cosine(a, c), cosine(b, c)) < 0.5


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


def test_labels_may_be_of_any_integers(rng):
    rows = rng.normal(size=(7, 3))
    loss = started("arcface", rows, LABELS.astype("uint64"))
    assert loss.num_classes == 3


def test_negative_labels_are_rejected(rng):
    with pytest.raises(ValueError, match=r"`labels` must be >= 0\. Received: labels=-1"):
        started("arcface", rng.normal(size=(2, 4)), np.array([-1, 0]))


@pytest.mark.parametrize("centers", [1, 3])
def test_a_class_without_images_starts_as_published(centers, rng):
    published = started("soft_triple", None, centers=centers, initializer=None)
    published.layer.build((None, 64))
    labels = np.where(LABELS == 1, 0, LABELS)
    loss = started("soft_triple", rng.normal(size=(7, 64)), labels, centers=centers)
    same = np.isclose(proxies_of(loss), proxies_of(published), atol=1e-5)
    assert [rows.all() for rows in same] == [False, True, False]


@pytest.mark.parametrize("centers", [1, 3])
def test_proxies_of_a_network_that_maps_all_images_to_one_row_have_a_direction(centers):
    published = started("soft_triple", None, centers=centers, initializer=None)
    published.layer.build((None, 64))
    loss = started("soft_triple", np.ones((7, 64), "float32"), centers=centers)
    np.testing.assert_allclose(proxies_of(loss), proxies_of(published), rtol=1e-3, atol=1e-4)


def test_the_lengths_are_those_of_the_published_start(rng):
    rows = rng.normal(size=(7, 64))
    published = started("proxy_anchor", None, initializer=None)
    published.layer.build((None, 64))
    loss = started("proxy_anchor", rows, initializer="class_means")
    lengths, expected = (np.linalg.norm(proxies_of(of), axis=1) for of in (loss, published))
    np.testing.assert_allclose(lengths, expected, rtol=1e-5)


@pytest.mark.parametrize("initializer", ["class_means", "centred_class_means"])
def test_several_centers_surround_the_mean(initializer, rng):
    rows = rng.normal(size=(7, 64))
    loss = started("soft_triple", rows, centers=3, initializer=initializer)
    proxies = proxies_of(loss)
    proxies = proxies / np.linalg.norm(proxies, axis=-1, keepdims=True)
    for centers, mean in zip(proxies, means_of(rows, initializer), strict=True):
        degrees = np.degrees(np.arccos(centers @ mean / np.linalg.norm(mean)))
        assert (degrees > 4).all()
        assert (degrees < 7).all()
    again = started("soft_triple", rows, centers=3, initializer=initializer)
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


BASE = {"name": "norm_softmax"}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("arcface", {"initializer": "class_means"}),
        ("proxy_anchor", {"initializer": "class_means"}),
        ("sampled_classes", {"base": BASE, "rate": 1.0}),
    ],
)
def test_proxies_grow_by_new_classes_at_their_means(name, options, rng):
    loss = started(name, rng.normal(size=(7, 5)), **options)
    loss.layer.proxies.assign(proxies_of(loss) + 1)  # as trained
    known, rows, labels = proxies_of(loss), rng.normal(size=(6, 5)), np.array([3, 4, 3, 0, 4, 4])
    loss.grow(5, labels, rows)
    grown = proxies_of(loss)
    np.testing.assert_array_equal(grown[:3], known)
    for label in (3, 4):
        mean = sum(row / np.linalg.norm(row) for row in rows[labels == label])
        np.testing.assert_allclose(cosine(grown[label], mean), 1, atol=1e-5)
    loss.grow(8)  # without images
    np.testing.assert_array_equal(proxies_of(loss)[:5], grown)
    assert float(loss(np.arange(8), rng.normal(size=(8, 5)), training=True)) > 0


def test_a_loss_without_weights_grows_and_wrong_numbers_of_classes_are_rejected(rng):
    loss = losses.get("arcface", num_classes=3)
    loss.grow(4)
    assert not loss.layer.built
    with pytest.raises(ValueError, match=r"`num_classes` must be more.*num_classes=4, known=4"):
        loss.grow(4)
    with pytest.raises(ValueError, match=r"below `num_classes`.*largest=9, num_classes=5"):
        loss.grow(5, np.array([4, 9]), rng.normal(size=(2, 3)))
    assert loss.num_classes == 4
