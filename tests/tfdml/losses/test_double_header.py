import keras
import numpy as np
import oracles
import pytest
from backend import value_and_gradient
from keras import ops

from tfdml import losses
from tfdml.layers import PDDM
from tfdml.losses.double_header import mine

SEEDED = {"seed": 3, "units": 8}


def scored_pairs(loss, batch, dim, monkeypatch):
    """The number of pairs that each call of the layer's score saw in one value of the loss."""
    asked = []
    score = loss.layer.score

    def counting(ends, a, b):
        asked.append(int(a.shape[0]))
        return score(ends, a, b)

    monkeypatch.setattr(loss.layer, "score", counting)
    rows = np.random.default_rng(0).normal(size=(batch, dim)).astype("float32")
    loss(np.arange(batch) // 4, rows)
    return asked


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="traced once, run many times")
@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, [64 * 65 // 2]), ({"preset": "published"}, [64 * 65 // 2, 3])],
    ids=["all pairs", "one quadruplet"],
)
def test_scores_each_pair_once_and_those_with_a_gradient(options, expected, monkeypatch):
    assert scored_pairs(losses.get("pddm", **options), 64, 8, monkeypatch) == expected


@pytest.mark.parametrize("num_quadruplets", [1, "per_positive_pair"])
def test_a_temperature_smooths_the_maxima_of_the_metric_loss(num_quadruplets, rng):
    labels, x = np.array([0, 0, 0, 1, 1, 2, 2, 3]), rng.normal(size=(8, 5))
    options = {"num_quadruplets": num_quadruplets, "alpha": 0.3, "embedding_weight": 0.0}
    layer = PDDM(seed=3, units=8, difference_bias=0.5, dropout=0.0, dtype="float64")
    loss = losses.get("pddm", similarity=layer, temperature=0.2, **options)
    value, gradient = value_and_gradient(loss, labels, x)
    scores = ops.convert_to_numpy(layer.matrix(oracles.unit(x)))
    mined = mine(ops.convert_to_tensor(labels), ops.convert_to_tensor(scores), num_quadruplets)
    i, j, valid = (ops.convert_to_numpy(part) for part in (mined.i, mined.j, mined.valid))

    def hardest(row):
        return 0.2 * np.log(sum(np.exp(scores[row, labels != labels[row]] / 0.2)))

    expected = [
        sum(0.2 * np.log1p(np.exp((0.3 + hardest(row) - scores[a, b]) / 0.2)) for row in (a, b))
        for a, b in zip(i[valid], j[valid], strict=True)
    ]
    np.testing.assert_allclose(value, np.mean(expected), rtol=1e-6)
    assert np.isfinite(gradient).all()
    cold = losses.get("pddm", similarity=layer, temperature=1e-4, **options)
    hard = losses.get("pddm", similarity=layer, temperature=None, **options)
    np.testing.assert_allclose(float(cold(labels, x)), float(hard(labels, x)), atol=1e-3)


def test_a_loss_saved_by_an_earlier_version_keeps_its_negatives():
    config = losses.get("pddm").get_config()
    assert type(losses.get("pddm")).from_config(config).temperature == 0.1
    del config["temperature"], config["embedding_mining"]
    del config["similarity"]["config"]["difference_bias"]
    config |= {"metric_headers": 2, "mine_with_dropout": True}
    restored = type(losses.get("pddm")).from_config(config)
    assert (restored.temperature, restored.embedding_mining) == (None, "similarity")
    assert restored.layer.difference_bias == 0.0
    with pytest.raises(ValueError, match=r"`metric_headers` must be 2.*Received: metric_headers=1"):
        type(restored).from_config({**config, "metric_headers": 1})


def test_a_score_with_a_bias_starts_aware_of_distances(rng):
    row, step = rng.normal(size=(1, 16)), rng.normal(size=(1, 16))
    for bias, aware in ((0.0, False), (0.5, True)):
        layer = PDDM(seed=3, use_position=False, difference_bias=bias)
        near, far = (float(layer(row, row + length * step)[0]) for length in (0.1, 1.0))
        assert (abs(far - near) > 1e-3) == aware


def test_a_gap_of_the_wrong_sign_is_what_costs(rng):
    labels, x = np.repeat(np.arange(3), 4), rng.normal(size=(12, 5))
    loss = losses.get("quadruplet", beta=1e-3)
    tight = np.eye(3)[labels] + 1e-3 * rng.normal(size=(12, 3))
    assert value_and_gradient(loss, labels, tight)[0] == 0
    assert value_and_gradient(loss, labels, x)[0] > 0


def test_dropout_is_in_the_training_loss_alone(rng):
    labels, x = np.repeat(np.arange(4), 4), rng.normal(size=(16, 16)).astype("float32")
    loss = losses.get("pddm", similarity={**SEEDED, "dropout": 0.5})
    still = float(loss(labels, x))
    assert float(loss(labels, x)) == still
    drawn = {float(loss(labels, x, training=True)) for _ in range(4)}
    assert len(drawn | {still}) == 5


def test_options_change_the_published_ones():
    loss = losses.get("lmdm", preset="published", similarity={"units": 4}, alpha=0.3)
    assert (loss.alpha, loss.beta) == (0.3, 1.0)
    assert (loss.layer.units, loss.layer.dropout, loss.layer.use_position) == (4, 0.5, False)
    assert losses.get("lmdm").layer.dropout == 0
    for name, preset in (("triplet", "published"), ("pddm", "publisht")):
        with pytest.raises(ValueError, match=f"`preset` .*Received: preset='{preset}'"):
            losses.get(name, preset=preset)


def test_a_dict_adds_to_what_the_name_stands_for():
    loss = losses.get("lmdm", similarity={"dropout": 0.2})
    assert (loss.layer.use_position, loss.layer.dropout) == (False, 0.2)
    layer = PDDM(units=3)
    assert losses.get("lmdm", similarity=layer).layer is layer
    assert losses.get("quadruplet").layer is None
    assert losses.get("pddm_triplet").headers == 1


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="fits by the tape")
def test_a_plain_model_is_rejected_since_it_would_not_train_the_layer(rng):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4)])
    model.compile(optimizer="sgd", loss=losses.get("pddm"))
    with pytest.raises(ValueError, match=r"plain keras\.Model neither trains nor saves"):
        model.fit(rng.normal(size=(8, 6)), np.repeat(np.arange(2), 4), verbose=0)
