"""Embeds the images of a collection, and writes the shards that are missing."""

import contextlib
import functools
import itertools

from tfdml.command_line import one_sentence
from tfdml.quiet import progress
from tfdml.scale.image_model import ImageModel
from tfdml.scale.listed_images import cut, list_images
from tfdml.scale.storage import fetch_all
from tfdml.scale.writing import manifest_of, rows_of
from tfdml.serving.versions import name_of
from tfdml.threads import in_order

_CONTINUE = "run the same command to continue"
_READING = 2  # pieces read at once, each on all cores, while another is embedded


def embed(program, settings, errors, version, collection, ray_engine=None):
    """Checks everything, then embeds what is missing; returns the number of embedded images.

    Once the work has begun, `errors` end the program with another code; `ray_engine` is the module.
    """
    model = ImageModel(version)
    identity = {"model": model.fingerprint, "dim": model.dim, "shard_size": settings.shard_size}
    collection.check(manifest_of(**identity))  # before listing, which may take minutes
    listing = list_images(settings.images)
    manifest = manifest_of(**identity, listing=listing)
    stop = {"code": 1, "hint": f"; {_CONTINUE}", "stopped": f"stopped: {_CONTINUE}"}
    connected, work = contextlib.nullcontext(), functools.partial(embedded, model)
    if ray_engine:
        connected = ray_engine.connected(settings.address)
        work = functools.partial(ray_engine.embedded, version)
    with connected, collection.folder.only_writer():
        collection.check(manifest)
        with one_sentence(program, RuntimeError, *errors, **stop):
            collection.begin(manifest, listing)
            embed_missing(collection, listing, model.batch_size, work)
            unreadable = collection.finish()
    hint = ": see `error` in the shards" if unreadable else ""
    done = f"Embedded {listing.images - unreadable:,} images with {name_of(version)}"
    print(f"{done}: {settings.out}\nCould not read {unreadable:,} images{hint}")
    return listing.images - unreadable


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
