"""The files of a collection, as docs/scale.md describes them."""

import pathlib

FORMAT = 1  # of the manifest
MANIFEST, LIST, SHARDS = "manifest.json", "list.parquet", "shards"
AGAIN = "delete it, and run `python -m tfdml.scale embed` again"  # for a damaged list or shard


def shard_name(number):
    """The path of a shard in its collection."""
    return f"{SHARDS}/{number:05d}.parquet"


def is_collection(folder):
    """Whether a folder holds the embeddings of a collection."""
    return (pathlib.Path(folder) / MANIFEST).is_file()
