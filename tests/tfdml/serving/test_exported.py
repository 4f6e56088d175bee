import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
from damage import check_damage
from served_models import SIZE

from tfdml.serving import exported
from tfdml.serving.exported import load_signatures


def embeddings(version):
    """Those of a few images."""
    images = np.random.default_rng(0).uniform(0, 255, (3, *SIZE)).astype("float32")
    rows = load_signatures(version)["embed_images"](images=tf.constant(images))["embedding"]
    return rows.numpy().tolist()


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.data-00000-of-00001"])
def test_a_damaged_version_is_named(served, tmp_path, name):
    copy = shutil.copytree(served.folder / "1", tmp_path / "1")
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"1 cannot be read \(its graph or variables are damaged"):
        load_signatures(copy)


@pytest.mark.slow
def test_damage_is_named_and_kills_nothing(served, tmp_path):
    check_damage(embeddings, shutil.copytree(served.folder / "1", tmp_path / "1"), places=100)


def test_a_model_at_the_root_has_no_run_beside_it():
    assert exported.config_of(pathlib.Path("/models"), {}) is None
    assert exported.config_of(pathlib.Path("/models/1"), {}) is None
