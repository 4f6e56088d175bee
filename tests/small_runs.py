"""A small training run, and small folders of images."""

import numpy as np
from PIL import Image

SMALL = ["--dataset", "digits", "--classes_per_batch", "5", "--embedding_dim", "16"]
SMALL += ["--learning_rate", "1e-3"]  # for runs of a few steps
TWO_STEPS = ["--steps", "2", "--checkpoint_every", "1"]


def write_images(folder, classes):
    """Writes random images of 16 pixels, as many of each class as `classes` names."""
    rng = np.random.default_rng(0)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            picture = rng.integers(0, 256, (16, 16, 3)).astype("uint8")
            Image.fromarray(picture).save(folder / name / f"{number}.png")
    return folder
