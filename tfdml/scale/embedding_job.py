"""Embeds the images of a collection, and writes the shards that are missing."""

import contextlib
import itertools

from tfdml.quiet import progress
from tfdml.scale.listed_images import cut
from tfdml.scale.storage import fetch_all
from tfdml.scale.writing import rows_of
from tfdml.threads import in_order

_READING = 2  # pieces read at once, each on all cores, while another is embedded


def embed_missing(collection, listing, batch_size, embedded):
    """Embeds and writes the missing shards; `embedded` makes tables of `rows_of` of the pieces."""
    missing, size = set(collection.missing()), collection.shard_size
    shards = (each for each in enumerate(listing.shards(size)) if each[0] in missing)
    shards, asked = itertools.tee(shards)
    images = sum(min(size, listing.images - number * size) for number in missing)
    with (
        contextlib.closing(embedded(_pieces_of(asked, size, batch_size))) as tables,
        progress("Embedding", total=images) as bar,
    ):
        for (number, shard), rows in zip(shards, cut(_counted(tables, bar), size), strict=True):
            collection.write_shard(number, shard, rows)


def embedded(model, pieces):
    """Yields a table of `rows_of` for each of the pieces, of which a few are in memory at once."""

    def read(piece):
        ids, paths = piece
        return ids, model.read(fetch_all(paths))

    for ids, images in in_order(read, pieces, 1 + _READING):
        yield rows_of(ids, *model.embed(*images))


def _pieces_of(shards, shard_size, batch_size):
    """The ids and paths of shards, in pieces of a batch."""
    for number, shard in shards:
        start = number * shard_size
        yield from in_batches(range(start, start + len(shard)), shard["path"], batch_size)


def in_batches(ids, paths, batch_size):
    """Yields ids and a list of their paths, of at most `batch_size` images at once."""
    for first in range(0, len(ids), batch_size):
        some = slice(first, first + batch_size)
        yield ids[some], paths[some].to_pylist()


def _counted(tables, bar):
    for table in tables:
        bar.update(len(table))
        yield table
