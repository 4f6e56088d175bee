"""The files of a collection, as docs/scale.md describes them."""

import pathlib
import re

FORMAT = 1  # of the manifest
CHANGED_FORMAT = 2  # of that of a collection which was changed, as earlier versions cannot read it
REMOVED = "removed"  # the `error` of an image that was taken out
STATE = ("id", "error", "version")  # columns of a shard that no list has
STAMP = "file_stamp"  # column of a list that says which version of a file an image is
SEARCHED = "searched_folder"  # key of the manifest of an index that a search keeps up to date
MANIFEST, LIST, SHARDS = "manifest.json", "list.parquet", "shards"
_SHARD = re.compile(rf"{SHARDS}/(\d+)(?:-(\d+))?\.parquet")
ANEW = "embed the images into a new folder"  # for a damaged shard of a changed collection
AGAIN = "delete it, and run `python -m tfdml.scale embed` again"  # for a damaged list or shard


def shard_name(number, version=0):
    """The path of a shard in its collection, as a version of the collection has written it."""
    suffix = f"-{version}" if version else ""
    return f"{SHARDS}/{number:05d}{suffix}.parquet"


def shard_names(manifest):
    """The paths of all shards of a collection, in order."""
    names = {number: shard_name(number) for number in range(manifest["shards"])}
    named = {_SHARD.fullmatch(name): name for name in manifest.get("files", {})}
    return list((names | {int(found[1]): name for found, name in named.items() if found}).values())


def written_by(shard):
    """The version of the collection that wrote the shard of a name."""
    return int(_SHARD.fullmatch(shard)[2] or 0)  # pyright: ignore[reportOptionalSubscript]


def is_collection(folder):
    """Whether a folder holds the embeddings of a collection."""
    return (pathlib.Path(folder) / MANIFEST).is_file()
