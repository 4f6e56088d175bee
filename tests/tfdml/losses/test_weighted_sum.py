import numpy as np
from cases import INITIALIZER

from tfdml import losses

LABELS = np.array([0, 0, 1, 1, 2, 2])
PROXIES = {"num_classes": 3, "initializer": INITIALIZER}


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


def test_classes_are_counted_in_all_parts_whose_proxies_have_names_of_their_own(rng):
    loss = losses.WeightedSum({"arcface": 1.0, "soft_triple": 0.5, "triplet": 1.0})
    loss.prepare(LABELS, embeddings=lambda: rng.normal(size=(6, 4)))
    paths = [layer.proxies.path for layer in loss.layers]
    assert paths == ["class_proxies/proxies", "class_proxies_1/proxies"]
    assert [layer.num_classes for layer in loss.layers] == [3, 3]
