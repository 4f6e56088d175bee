import shutil

import numpy as np
import pytest
import tensorflow as tf
from damage import check_damage

from tfdml.models import build_embedder
from tfdml.serving import export_model
from tfdml.serving.exported import load_signatures


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    embedder = build_embedder("small_cnn", 4, input_shape=(8, 8, 1))
    return export_model(embedder, tmp_path_factory.mktemp("exported") / "1")


def embeddings(version):
    """Those of a few images."""
    images = np.random.default_rng(0).uniform(0, 255, (3, 8, 8, 1)).astype("float32")
    rows = load_signatures(version)["embed_images"](images=tf.constant(images))["embedding"]
    return rows.numpy().tolist()


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.data-00000-of-00001"])
def test_a_damaged_version_is_named(version, tmp_path, name):
    copy = shutil.copytree(version, tmp_path / "1")
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"1 cannot be read \(its graph or variables are damaged"):
        load_signatures(copy)


@pytest.mark.slow
def test_damage_is_named_and_kills_nothing(version, tmp_path):
    check_damage(embeddings, shutil.copytree(version, tmp_path / "1"), places=100)
