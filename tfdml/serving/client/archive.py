"""Embeddings in a file."""

import os
import pathlib

import numpy as np


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
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            np.savez(file, paths=paths, embeddings=embeddings, model=model, version=version)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
