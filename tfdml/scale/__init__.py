"""Embedding, index and evaluation of collections of images that do not fit in memory.

Start it with `python -m tfdml.scale`; see its `--help`.
"""

import pathlib

MANIFEST = "manifest.json"


def is_collection(folder):
    """Whether a folder holds the embeddings of a collection."""
    return (pathlib.Path(folder) / MANIFEST).is_file()
