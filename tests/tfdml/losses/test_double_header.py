import keras
import numpy as np
import pytest

from tfdml import losses
from tfdml.layers import PDDM


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


def test_a_dict_adds_to_what_the_name_stands_for():
    loss = losses.get("lmdm", similarity={"dropout": 0.2})
    assert (loss.layer.use_position, loss.layer.dropout) == (False, 0.2)
    layer = PDDM(units=3)
    assert losses.get("lmdm", similarity=layer).layer is layer
    assert losses.get("quadruplet").layer is None
    assert losses.get("pddm_triplet").headers == 1
