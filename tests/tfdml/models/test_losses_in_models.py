"""Every loss in `EmbeddingModel` and in a plain Keras model, by name and by config."""

import keras
import numpy as np
import pytest
from small_models import LABELS, OPTIONS, by_default

from tfdml import EmbeddingModel, losses
from tfdml.models import build_embedder

WITHOUT_LAYERS = [
    name for name in sorted(losses.LOSSES) if not losses.get(name, **OPTIONS.get(name, {})).layers
]


@pytest.mark.parametrize("loss", by_default(WITHOUT_LAYERS, {"recall_at_k", "regularized"}))
def test_losses_work_in_a_plain_keras_model(loss, images, tmp_path):
    layers = keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(9)
    model = keras.Sequential([keras.Input((8, 8, 1)), *layers])
    model.compile(optimizer="adam", loss=losses.get(loss, **OPTIONS.get(loss, {})))
    history = model.fit(images, LABELS, batch_size=16, epochs=30, verbose=0).history["loss"]
    assert np.mean(history[-5:]) < np.mean(history[:5])
    model.save(tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras").loss.name == loss


def test_a_loss_may_be_given_by_name_or_config():
    embedder = build_embedder("small_cnn", 4, input_shape=(8, 8, 1))
    model = EmbeddingModel(embedder)
    for given in ("triplet", keras.losses.serialize(losses.get("triplet", margin=0.3))):
        model.compile("adam", loss=given)
        assert isinstance(model.loss, losses.TripletLoss)
    assert model.loss.margin == 0.3
    model.compile("adam", loss="mse")
    with pytest.raises(ValueError, match=r"Unknown loss 'tripet'. Did you mean 'triplet'"):
        model.compile("adam", loss="tripet")


@pytest.mark.parametrize("weighted", ["class", "sample"])
def test_classes_and_rows_of_a_loss_over_proxies_are_weighted(weighted, rng):
    x, labels = rng.normal(size=(6, 5)).astype("float32"), np.array([0, 0, 1, 1, 2, 2])
    weights = {0: 3.0, 1: 1.0, 2: 0.0}
    row_weights = np.array([weights[label] for label in labels])
    keras.utils.set_random_seed(0)
    model = EmbeddingModel(keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)]))
    model.compile("sgd", losses.get("arcface", num_classes=3), run_eagerly=True)
    model.embedder.trainable = False
    model.loss.layer.trainable = False
    expected = float(model.loss(labels, model(x), sample_weight=row_weights, training=False))
    given = {"class_weight": weights} if weighted == "class" else {"sample_weight": row_weights}
    history = model.fit(x, labels, batch_size=6, verbose=0, **given).history
    np.testing.assert_allclose(history["loss"], expected, rtol=1e-5)
    assert expected != pytest.approx(float(model.loss(labels, model(x))), rel=0.01)
