"""The images of a race, which both sides read, and the score of their embeddings."""

import numpy as np

BLOCK = 1024  # queries at a time
DRAWS = 9  # of an image: area, aspect, top, left; flip, rotation, zoom, two shifts


def images_of(settings, folder):
    """{"train_images", "train_labels", "test_images", "test_labels"}, uint8 and ids from 0.

    With a `validation_share`, the last classes of training are scored in place of the test's.
    Scored images are cropped at the centre to `pixels`.
    """
    with np.load(folder / settings["inputs"]) as arrays:
        images = dict(arrays)
    if share := settings["validation_share"]:
        labels = images["train_labels"]
        classes = labels.max() + 1
        held_out = labels >= classes - round(share * classes)
        for name in ("images", "labels"):
            every = images[f"train_{name}"]
            images[f"train_{name}"], images[f"test_{name}"] = every[~held_out], every[held_out]
    pixels = settings["pixels"]
    first = (images["test_images"].shape[1] - pixels) // 2
    middle = slice(first, first + pixels)
    images["test_images"] = images["test_images"][:, middle, middle]
    return images


def draws_of(settings):
    """The random numbers of the augmentation of a batch, (n, DRAWS) floats."""
    rows = settings["classes_per_batch"] * settings["images_per_class"]
    return np.random.default_rng(settings["seed"]).uniform(size=(rows, DRAWS))


def recalls(rows, labels, ks):
    """{"recall@K"} of rows, (n, dim), each a query in all others by Euclidean distance."""
    if not np.isfinite(rows).all():
        return {f"recall@{k}": 0.0 for k in ks}
    lengths, most = np.sum(rows**2, axis=1), max(ks)
    first = np.empty(len(rows), int)  # place of the first row of the class among the nearest
    for start in range(0, len(rows), BLOCK):
        block = np.arange(start, min(start + BLOCK, len(rows)))
        distances = lengths - 2 * rows[block] @ rows.T
        distances[np.arange(len(block)), block] = np.inf
        nearest = np.argpartition(distances, most, axis=1)[:, :most]
        order = np.argsort(np.take_along_axis(distances, nearest, axis=1), axis=1)
        hits = labels[np.take_along_axis(nearest, order, axis=1)] == labels[block, None]
        first[block] = np.where(hits.any(axis=1), hits.argmax(axis=1), most)
    return {f"recall@{k}": np.mean(first < k) for k in ks}
