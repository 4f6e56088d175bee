"""Embedding, index and evaluation of collections of images that do not fit in memory.

Start it with `python -m tfdml.scale`; see its `--help`.
"""

import pathlib

FORMAT = 1  # of the manifest
MANIFEST, LIST, SHARDS = "manifest.json", "list.parquet", "shards"
AGAIN = "delete it, and run `python -m tfdml.scale embed` again"  # for a damaged list or shard


def shard_name(number):
    """The file name of a shard."""
    return f"{number:05d}.parquet"


def is_collection(folder):
    """Whether a folder holds the embeddings of a collection."""
    return (pathlib.Path(folder) / MANIFEST).is_file()
