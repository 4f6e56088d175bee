import json

import numpy as np
import pytest
import tensorflow as tf
from mean_colours import CLASSES, PARENTS, SIDE, embedding_of
from PIL import Image
from served_models import loaded_once

from tfdml.serving import exported


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """Four images of each class, 10 to 13 pixels wide, and their hierarchy."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("tasks") / "photos"
    for number, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        centre = rng.uniform(60, 200, (1, 1, 3))
        for i in range(4):
            pixels = centre + rng.normal(size=(9 + number, 10 + i, 3)) * 40 + rng.normal() * 30
            image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            image.save(folder / name / f"{i}.png")
    lines = "".join(f"{child},{parent}\n" for child, parent in PARENTS.items())
    (folder.parent / "tree.csv").write_text(f"class,parent\n{lines}")
    return folder


@pytest.fixture(scope="session")
def version(photos):
    """A model whose recipe names the photos."""
    version = photos.parent / "saved_models" / "colours" / "1"
    module = tf.Module()
    embed = tf.function(lambda images: {"embedding": embedding_of(images)})
    spec = tf.TensorSpec([None, SIDE, SIDE, 3], tf.float32, name="images")
    tf.saved_model.save(module, str(version), {"embed_images": embed.get_concrete_function(spec)})
    recipe = {"dataset": "folder", "data_dir": str(photos), "embedding_dim": 3}
    (version / "assets.extra").mkdir()
    metadata = {"recipe": {**recipe, "validation_share": 0.0}}
    (version / "assets.extra" / "metadata.json").write_text(json.dumps(metadata))
    return version


@pytest.fixture(autouse=True, scope="module")
def _models_are_loaded_once():
    with loaded_once(exported):
        yield


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
