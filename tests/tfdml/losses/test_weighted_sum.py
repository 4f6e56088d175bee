import numpy as np
import pytest
from keras import ops

from tfdml import losses

LABELS = np.array([0, 0, 1, 1, 2, 2])
NORMAL = {"class_name": "RandomNormal", "config": {"stddev": 1.0, "seed": 3}}
PROXIES = {"num_classes": 3, "initializer": NORMAL}


def test_parts_are_names_options_or_losses(rng):
    x = rng.normal(size=(6, 4)).astype("float32")
    triplet = losses.get("triplet", margin=0.2)
    expected = float(losses.get("npair")(LABELS, x)) + 0.5 * float(triplet(LABELS, x))
    for part in ((0.5, {"margin": 0.2}), [0.5, triplet], (0.5, {"name": "triplet", "margin": 0.2})):
        loss = losses.WeightedSum({"npair": 1, "triplet": part})
        np.testing.assert_allclose(float(loss(LABELS, x)), expected, rtol=1e-6)
    alone = losses.WeightedSum({"near": triplet, "npair": {}})
    np.testing.assert_allclose(float(alone(LABELS, x)), expected + 0.5 * float(triplet(LABELS, x)))


def test_it_has_what_its_parts_learn(rng):
    parts = {"arcface": (2.0, PROXIES), "proxy_anchor": (0.5, PROXIES), "pddm": 1.0}
    loss, x = losses.WeightedSum(parts), rng.normal(size=(6, 4)).astype("float32")
    assert len({id(layer) for layer in loss.layers}) == 3
    assert loss.num_classes == 3
    assert loss.traits.learns_similarity
    assert loss.similarity(x[:2], x[2:4]).shape == (2,)
    value = float(loss(LABELS, x))
    single = [float(part(LABELS, x)) for part in loss.parts]
    np.testing.assert_allclose(value, 2 * single[0] + 0.5 * single[1] + single[2], rtol=1e-6)


def test_classes_are_counted_and_grow_in_all_parts(rng):
    loss = losses.WeightedSum({"arcface": 1.0, "soft_triple": 0.5, "triplet": 1.0})
    loss.prepare(LABELS, embeddings=lambda: rng.normal(size=(6, 4)))
    loss.grow(5)
    assert [ops.shape(layer.proxies)[0] for layer in loss.layers] == [5, 5]
    assert [layer.proxies.path.split("/")[0] for layer in loss.layers] == [
        "class_proxies",
        "class_proxies_1",
    ]


@pytest.mark.parametrize(
    "part", [{"name": "density", "initial_density": [0.1] * 3}, {"name": "triplet"}]
)
def test_nothing_grows_beside_a_part_whose_classes_are_fixed(part):
    loss = losses.WeightedSum({"sums": {"name": "matryoshka", "base": part, "dims": [2]}})
    with pytest.raises(ValueError, match="must be the only parts that know them"):
        loss.grow(5)
    loss = losses.WeightedSum({"arcface": {"num_classes": 3}, "part": part})
    if part["name"] == "density":
        with pytest.raises(ValueError, match=r"Received: parts=\['density_regularizer'\]"):
            loss.grow(5)
        assert loss.parts[0].num_classes == 3


def test_rows_are_weighted_if_all_parts_have_terms_of_rows(rng):
    x, weights = rng.normal(size=(6, 4)).astype("float32"), np.arange(6.0)
    loss = losses.WeightedSum({"arcface": (2.0, PROXIES), "proxy_nca": (1.0, PROXIES)})
    value = float(loss(LABELS, x, sample_weight=weights, training=False))
    single = [float(p(LABELS, x, sample_weight=weights, training=False)) for p in loss.parts]
    np.testing.assert_allclose(value, 2 * single[0] + single[1], rtol=1e-6)
    loss = losses.WeightedSum({"arcface": (2.0, PROXIES), "triplet": 1.0})
    with pytest.raises(ValueError, match="does not support `sample_weight`"):
        loss(LABELS, x, sample_weight=weights, training=False)
