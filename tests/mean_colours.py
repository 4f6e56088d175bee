"""A model whose embeddings are mean colours, and what it must score."""

import json
import pathlib
import re

import numpy as np
import programs
import tensorflow as tf
from PIL import Image

from tfdml.images.decoding import resize
from tfdml.programs import evaluate

SIDE = 8
# The first four train. Each family has a class on both sides, but for the last.
CLASSES = ("a1", "b1", "c1", "c2", "f1", "f2", "f3", "g1", "g2")
PARENTS = {"a1": "A", "f1": "A", "f2": "A", "b1": "B", "f3": "B", "c1": "C", "c2": "C"}
PARENTS |= {"g1": "G", "g2": "G"} | dict.fromkeys("ABCG", "all")


def embedding_of(images):
    """(n, 6): the mean colours of the left and of the right half, two levels of three numbers."""
    halves = images[:, :, : SIDE // 2], images[:, :, SIDE // 2 :]
    return tf.concat([tf.reduce_mean(half, axis=[1, 2]) / 255 for half in halves], axis=1)


def data_of(photos, names, side=SIDE, part=lambda image: image):
    """Images of classes at one size, and their labels, which are places in `CLASSES`."""
    images, labels = [], []
    for name in names:
        for path in sorted((photos / name).iterdir()):
            images.append(resize(part(np.asarray(Image.open(path))), (side, side, 3)).numpy())
            labels.append(CLASSES.index(name))
    return np.stack(images), np.array(labels)


def saved_model(folder, photos=None, scale=1.0):
    """Photos, four of each class, 10 to 13 pixels wide, and a model whose recipe names them."""
    photos = photos or write_photos(folder / "photos")
    version = folder / "saved_models" / "colours" / "1"
    embed = tf.function(lambda images: {"embedding": scale * embedding_of(images)})
    spec = tf.TensorSpec([None, SIDE, SIDE, 3], tf.float32, name="images")
    signatures = {"embed_images": embed.get_concrete_function(spec)}
    tf.saved_model.save(tf.Module(), str(version), signatures)
    recipe = {"dataset": "folder", "data_dir": str(photos), "embedding_dim": 3}
    (version / "assets.extra").mkdir()
    metadata = {"recipe": {**recipe, "validation_share": 0.0}}
    (version / "assets.extra" / "metadata.json").write_text(json.dumps(metadata))
    return photos, version


def write_photos(folder):
    rng = np.random.default_rng(0)
    for number, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        centre = rng.uniform(60, 200, (1, 1, 3))
        for i in range(4):
            pixels = centre + rng.normal(size=(9 + number, 10 + i, 3)) * 40 + rng.normal() * 30
            image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            image.save(folder / name / f"{i}.png")
    return folder


def scores(version, *arguments, name):
    evaluate.main([str(version), *map(str, arguments)])
    return json.loads(pathlib.Path("runs", "colours", f"{name}.json").read_text())


def rejection(*arguments):
    """The one sentence in which evaluate.py rejects these arguments."""
    return programs.run(evaluate.main, *arguments, cwd=".").sentence


def settings_on_the_page(path):
    return dict(re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", path.read_text()))
