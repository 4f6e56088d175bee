"""Embeddings in a file."""

import pathlib

import numpy as np

from tfdml.files import replacing


def save_embeddings(path, paths, embeddings, *, model, version):
    """Writes embeddings to a NumPy archive, in one step: a crash leaves no half of a file.

    `numpy.load(path)` gives `paths` (n,) texts, `embeddings` (n, dim) float32, `model` and
    `version`: embeddings of another version do not compare with these.

    Args:
        path: Path of the archive, such as `embeddings.npz`.
        paths: List of n texts, which image a row is of.
        embeddings: (n, dim) float32.
        model: Name of the model.
        version: Number of its version.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished, unfinished.open("wb") as file:
        np.savez(file, paths=paths, embeddings=embeddings, model=model, version=version)
