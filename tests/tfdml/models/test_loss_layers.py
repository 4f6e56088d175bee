"""What a loss learns beside the embedder: by which rate, with which decay, to what end."""

import keras
import numpy as np
import pytest
from small_models import LABELS, build, one_layer

from tfdml import EmbeddingModel, losses, optimizers


def test_l2_decay_spares_proxies(images):
    after = []
    for l2 in (0.0, 0.5):
        keras.utils.set_random_seed(0)
        loss = losses.get("proxy_anchor", num_classes=4)
        model = EmbeddingModel(build().embedder)
        model.compile(optimizers.SGD(0.01, l2=l2), loss)
        model.train_on_batch(images, LABELS)
        after.append([np.array(v) for v in model.trainable_variables])
    (*_, kernel, _, proxies), (*_, decayed, _, spared) = after
    assert proxies.shape[0] == 4
    np.testing.assert_array_equal(proxies, spared)
    assert np.abs(kernel - decayed).max() > 1e-4


@pytest.mark.parametrize(
    ("policy", "by_name"),
    [
        ("float32", True),
        ("mixed_float16", False),
        pytest.param("float32", False, marks=pytest.mark.slow),
        pytest.param("mixed_float16", True, marks=pytest.mark.slow),
    ],
)
def test_targets_of_density_are_never_decayed(policy, by_name, rng, tmp_path):
    rows, path = rng.normal(size=(16, 6)).astype("float32"), tmp_path / "model.keras"
    keras.config.set_dtype_policy(policy)
    try:
        model = one_layer()
        optimizer = keras.optimizers.AdamW(1e-2, weight_decay=1.0)
        bias = {"var_names": ["bias"]} if by_name else {"var_list": [model.embedder.variables[1]]}
        optimizer.exclude_from_weight_decay(**bias)
        # The first gradient of npair is too large for float16, so that its step is skipped.
        loss = losses.get("density", base="triplet", initial_density=[0.3] * 8)
        model.compile(optimizer=optimizer, loss=loss)
        for _ in range(2):
            model.train_on_batch(rows, LABELS)
            targets = np.array(model.loss.layer.targets)
            np.testing.assert_array_equal(targets[4:], 0.5)  # no row in the batch is of these
            assert (targets[:4] > 0.5).all()
            model.save(path)
            model = keras.models.load_model(path)
    finally:
        keras.config.set_dtype_policy("float32")
    assert [optimizer._use_weight_decay(v) for v in optimizer._trainable_variables] == [
        True,
        False,
        False,
    ]


def test_rejects_an_optimizer_that_passes_over_a_multiplier_of_the_loss():
    def compiled(optimizer, multiplier):
        model = one_layer()
        loss = losses.get("density", initial_density=[0.3] * 4, alpha_multiplier=multiplier)
        model.compile(optimizer=optimizer, loss=loss)
        return model

    multipliers = {"^density_targets/": 5.0}
    for optimizer in (
        "adam",
        optimizers.Adam(),
        optimizers.Adam(multipliers={"dense": 3.0}),
        optimizers.Adam(multipliers={"^density_targets/": 2.0}),
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()),
    ):
        with pytest.raises(ValueError, match="'density_targets' of the loss requires 3 times"):
            compiled(optimizer, 3)
    rows = np.arange(96, dtype="float32").reshape(16, 6)
    moved = []
    for multiplier in (1, 5):
        model = compiled(optimizers.SGD(0.01, multipliers=multipliers), multiplier)
        model.train_on_batch(rows, LABELS)
        moved.append(np.array(model.loss.layer.targets) - 0.5)
    assert (moved[0] > 0).all()
    np.testing.assert_allclose(*moved)  # what the optimizer has counts
    compiled(keras.optimizers.LossScaleOptimizer(optimizers.SGD(multipliers=multipliers)), 5)


def test_evaluates_what_the_loss_learns_without_dropout(images):
    model = build(loss=losses.get("pddm"))
    expected = model.loss(LABELS, model.embed(images))
    reported = model.evaluate(images, LABELS, batch_size=16, verbose=0)
    np.testing.assert_allclose(reported, expected, rtol=1e-5)


@pytest.mark.slow
def test_learns_a_similarity_that_ranks_the_classes(rng):
    centres = rng.normal(size=(8, 6))
    labels = np.repeat(np.arange(8), 8)
    images = (centres[labels] + 0.8 * rng.normal(size=(64, 6))).astype("float32")
    embedder = keras.Sequential([keras.Input((6,)), keras.layers.Dense(6)])
    model = EmbeddingModel(embedder)
    similarity = {"units": 32, "dropout": 0.0, "seed": 0}
    loss = losses.get("pddm", num_quadruplets="per_positive_pair", similarity=similarity)
    model.compile(optimizer=optimizers.Adam(1e-2), loss=loss)

    def separation():
        rows = keras.ops.normalize(model.embed(images))
        scores = np.asarray(model.loss.similarity_layer.matrix(rows))
        same = (labels[:, None] == labels[None]) & ~np.eye(64, dtype=bool)
        different = labels[:, None] != labels[None]
        return np.mean(scores[same][:, None] > np.quantile(scores[different], 0.9))

    before = separation()
    model.fit(images, labels, batch_size=64, epochs=100, verbose=0)
    assert before < 0.5 < 0.7 < separation()
