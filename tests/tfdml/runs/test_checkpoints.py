import keras
import numpy as np
import pytest
from damage import check_damage

import tfdml
from tfdml.runs.checkpoints import read_model


@pytest.fixture
def checkpoint(tmp_path):
    embedder = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model = tfdml.EmbeddingModel(embedder)
    model.compile(optimizer="adam", loss=tfdml.losses.ProxyNCALoss(num_classes=4))
    rows = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
    model.fit(rows, np.arange(8) % 4, verbose=0)
    model.save(tmp_path / "checkpoint.keras")
    return tmp_path / "checkpoint.keras"


def weights(folder):
    """All numbers of the checkpoint in a folder."""
    model = read_model(folder / "checkpoint.keras")
    variables = [*model.variables, *model.optimizer.variables]
    return [np.asarray(variable).tolist() for variable in variables]


def test_a_damaged_checkpoint_is_named(checkpoint):
    content = bytearray(checkpoint.read_bytes())
    place = content.rindex(np.float32(weights(checkpoint.parent)[0][0][0]).tobytes())
    content[place] ^= 1
    checkpoint.write_bytes(content)
    with pytest.raises(ValueError, match=r"checkpoint\.keras cannot be read .*damaged='model\."):
        read_model(checkpoint)


@pytest.mark.slow
def test_damage_is_named_and_kills_nothing(checkpoint):
    check_damage(weights, checkpoint.parent, places=400)
