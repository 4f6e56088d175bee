import keras
import numpy as np
import pytest

from tfdml import losses
from tfdml.layers import PDDM


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="traced once, run many times")
@pytest.mark.parametrize(("preset", "expected"), [(None, [2080]), ("published", [2080, 3])])
def test_scores_each_pair_once_and_those_with_a_gradient(preset, expected, rng, monkeypatch):
    loss, asked = losses.get("pddm", preset=preset), []
    score = loss.layer.score

    def counting(ends, a, b):
        asked.append(int(a.shape[0]))
        return score(ends, a, b)

    monkeypatch.setattr(loss.layer, "score", counting)
    loss(np.arange(64) // 4, rng.normal(size=(64, 8)).astype("float32"))
    assert asked == expected


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
