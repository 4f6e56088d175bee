import keras
import numpy as np
import oracles
import pytest
from cases import CASES, id_of

from tfdml import losses

LABELS = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2, 3])


def over_pairs(name, options):
    loss = losses.get(name, **options)
    return isinstance(loss, losses.PairLoss) and loss.takes_references and not options.get("mix")


@pytest.mark.parametrize(
    ("name", "options"), [pytest.param(*c, id=id_of(*c)) for c in CASES if over_pairs(*c)]
)
def test_every_objective_over_pairs_leaves_out_what_the_rule_says(name, options, rng):
    x, given = 0.3 * rng.normal(size=(10, 6)), {"base": {"name": name, **options}}
    loss, plain = losses.get("guarded", margin=0.2, **given), losses.get(name, **options)(LABELS, x)
    value = float(loss(LABELS, x))
    assert value == pytest.approx(oracles.value(loss, LABELS, x), rel=1e-5)
    assert value != pytest.approx(float(plain), rel=1e-3)
    assert losses.get("guarded", max_similarity=1.1, **given)(LABELS, x) == plain


def test_a_class_in_two_halves_is_not_torn_apart(rng):
    """Rows of one place under two labels are pushed apart, but for the guard."""
    center, other = np.eye(6)[:2]
    x = np.array([center] * 6 + [other] * 3) + 0.1 * rng.normal(size=(9, 6))
    labels = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
    values = {
        bound: float(losses.get("guarded", base="npair", max_similarity=bound)(labels, x))
        for bound in (1.1, 0.6)
    }
    assert values[1.1] > 0.9
    assert values[0.6] < 0.1


def test_trains_by_compile_of_keras_around_a_memory(rng):
    keras.utils.set_random_seed(0)
    x, labels = rng.normal(size=(32, 4)).astype("float32"), np.arange(32) % 4
    model = keras.Sequential([keras.layers.Dense(3)])
    model.compile("sgd", loss=losses.get("guarded", base="triplet", margin=-0.2))
    history = model.fit(x, labels, batch_size=16, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    memory = {"name": "memory", "base": "triplet", "size": 64, "start_step": 0}
    loss = losses.get("guarded", base=memory, margin=-0.2)
    values = [float(loss(labels, x, training=True)) for _ in range(2)]
    assert values[0] < values[1]  # the memory adds a part
