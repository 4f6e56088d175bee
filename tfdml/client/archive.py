"""Writes embeddings to a file."""

import pathlib

import numpy as np

from tfdml.files import replacing


def save_embeddings(path, paths, embeddings, *, model, version):
    """Writes embeddings to a NumPy archive, atomically.

    `numpy.load(path)` returns `paths` (n,) texts, `embeddings` (n, dim) float32, `model` and
    `version`: embeddings of another version are not comparable with these.

    Args:
        path: Path of the archive, such as `embeddings.npz`.
        paths: List of n texts, the image of each row.
        embeddings: (n, dim) float32.
        model: Name of the model.
        version: Number of its version.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, paths=paths, embeddings=embeddings, model=model, version=version)
