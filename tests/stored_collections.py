"""Collections on disk, as `python -m tfdml.scale embed` writes them."""

import json

import pyarrow as pa

from tfdml.scale import Collection
from tfdml.scale.listed_images import Listing
from tfdml.scale.writing import CollectionWriter, rows_of


def write_collection(
    folder, embeddings, labels, shard_size=7, unreadable=(), model="m" * 64, paths=None
):
    """Writes a folder without checksums of its shards; returns its `Collection`."""
    paths = [f"images/{i}.png" for i in range(len(labels))] if paths is None else paths
    listed = pa.record_batch({"path": pa.array(paths), "label": pa.array(labels, pa.string())})
    listing, writer = Listing(lambda: [listed]), CollectionWriter(folder)
    identity = {"model": model, "dim": embeddings.shape[1], "shard_size": shard_size}
    writer.begin(identity, listing)
    for number, shard in enumerate(listing.shards(shard_size)):
        ids = range(number * shard_size, number * shard_size + len(shard))
        errors = ["it is empty" if i in unreadable else None for i in ids]
        writer.write_shard(number, shard, rows_of(ids, embeddings[ids], errors))
    return Collection(folder)


def finished(collection):
    """The collection, whose files have checksums now."""
    CollectionWriter(collection.folder).finish()
    return Collection(collection.folder)


def rewrite(path, **changed):
    """Changes values of a manifest or of an index's description, which loses its checksum."""
    content = {**json.loads(path.read_text()), **changed}
    content.pop("crc32", None)
    path.write_text(json.dumps(content))
