"""Writes the embeddings of a collection of images to a folder of Parquet files.

    python -m tfdml.scale embed --model saved_models/NAME/1 --images photos --out embeddings

The same command continues after a stop: it embeds the shards that are missing.
"""

import contextlib
import dataclasses
import importlib.util
import itertools
import os
import pathlib
from typing import ClassVar

from tfdml.checks import check_integer, check_one_of
from tfdml.command_line import Parser, fail, one_sentence
from tfdml.progress import progress
from tfdml.quiet import import_tensorflow
from tfdml.serving.exported import find_version, fingerprint
from tfdml.serving.versions import name_of

PROGRAM = "tfdml.scale embed"
ENGINES = {
    "local": ("pyarrow", "fsspec"),
    "ray": ("pyarrow", "fsspec", "ray"),
}  # and what they need
CONTINUE = "run the same command to continue"
FEW = 40 * 4096  # images; the cells of the default index would have too few of fewer to learn from


@dataclasses.dataclass(frozen=True)
class Embed:
    """Model, images and output folder.

    Args:
        model: A run's folder in `saved_models/`, for its newest version, or one version.
        images: A folder, whose images are found in all folders below it, labelled by the first of
            these; a pattern in quotes, such as `'photos/**/*.jpg'`, without labels; or a Parquet
            file with a column `path` and perhaps `label`. URLs such as s3://bucket/photos need the
            package of their file system, such as s3fs.
        out: Folder or URL to write to, which docs/scale.md describes; new, empty, or that of the
            same command before a stop.
        engine: `local` embeds in this process, on all cores and one GPU; `ray` on a Ray cluster, or
            with all GPUs of this machine (`pip install -e ".[ray]"`).
        address: Of the Ray cluster, such as 10.0.0.1:6379; `auto` is the one that this machine
            belongs to. If not given, Ray starts on this machine.
        shard_size: Images of a shard, which is what a stop may lose.
    """

    paths: ClassVar = ("model", "images", "out")

    model: str
    images: str
    out: str
    engine: str = "local"
    address: str | None = None
    shard_size: int = 10_000

    def __post_init__(self):
        check_one_of(list(ENGINES), engine=self.engine)
        check_integer(1, shard_size=self.shard_size)
        if self.address and self.engine != "ray":
            raise ValueError("`address` is that of a Ray cluster: give --engine ray")


def main(arguments=None):
    parser = Parser(Embed, as_positional=False, prog=PROGRAM, description=__doc__)
    settings = parser.settings_of(parser.parse_args(arguments))
    with one_sentence(PROGRAM, ValueError, TypeError, ImportError, *errors_of(settings)):
        check_installed(settings.engine)
        version = find_version(pathlib.Path(settings.model))
        if settings.engine == "ray":  # leave the GPUs' memory to the actors
            os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        import_tensorflow()
        embedded = embed(settings, version)
    if not embedded:
        fail(PROGRAM, f"no image of {settings.images} could be read", code=1)
    if "://" in settings.out:
        print("Next: copy it to a disk, and there: python -m tfdml.scale index FOLDER")
    else:
        few = " --factory Flat" if embedded < FEW else ""
        print(f"Next: python -m tfdml.scale index {settings.out}{few}")


def errors_of(settings):
    """The types of errors of the file systems; clients of networks raise many."""
    return (Exception,) if "://" in settings.images + settings.out else (OSError,)


def embed(settings, version):
    """Checks everything, then embeds what is missing; returns the number of embedded images."""
    from tfdml.scale.listing import list_images
    from tfdml.scale.model import ImageModel
    from tfdml.scale.writing import CollectionWriter, manifest_of

    model, collection = ImageModel(version), CollectionWriter(settings.out)
    identity = {"model": fingerprint(version), "dim": model.dim, "shard_size": settings.shard_size}
    collection.check(manifest_of(**identity))  # before listing, which may take minutes
    listing = list_images(settings.images)
    manifest = manifest_of(**identity, listing=listing)
    stop = {"code": 1, "hint": f"; {CONTINUE}", "stopped": f"stopped: {CONTINUE}"}
    with contextlib.ExitStack() as held:
        if settings.engine == "ray":
            from tfdml.scale.cluster import connected

            held.enter_context(connected(settings.address))
        held.enter_context(collection.folder.only_writer())
        collection.check(manifest)
        with one_sentence(PROGRAM, RuntimeError, ValueError, *errors_of(settings), **stop):
            collection.begin(manifest, listing)
            embed_missing(settings, version, model, collection, listing)
            collection.finish(manifest["shards"])
            unreadable = collection.unreadable(manifest["shards"])
    embedded = listing.images - unreadable
    hint = ": see `error` in the shards" if unreadable else ""
    done = f"Embedded {embedded:,} images with {name_of(version)}: {settings.out}"
    print(f"{done}\nCould not read {unreadable:,} images{hint}")
    return embedded


def embed_missing(settings, version, model, collection, listing):
    """Embeds the images of the shards that do not exist, and writes each shard."""
    from tfdml.scale.listing import cut

    size = settings.shard_size
    missing = set(collection.missing(-(-listing.images // size)))
    if not missing:
        return
    shards = (each for each in enumerate(listing.shards(size)) if each[0] in missing)
    shards, asked = itertools.tee(shards)
    pieces = pieces_of(asked, size, model.batch_size)
    if settings.engine == "ray":
        from tfdml.scale.cluster import embedded

        tables = embedded(version, pieces)
    else:
        from tfdml.scale.local import embedded

        tables = embedded(model, pieces)
    images = sum(min(size, listing.images - number * size) for number in missing)
    with contextlib.closing(tables), progress("Embedding", total=images) as bar:
        for (number, shard), rows in zip(shards, cut(counted(tables, bar), size), strict=True):
            collection.write_shard(number, number * size, shard, rows)


def pieces_of(shards, shard_size, batch_size):
    """The ids and paths of shards, in pieces of a batch."""
    for number, shard in shards:
        for first in range(0, len(shard), batch_size):
            paths = shard["path"][first : first + batch_size].to_pylist()
            start = number * shard_size + first
            yield range(start, start + len(paths)), paths


def counted(tables, bar):
    for table in tables:
        bar.update(len(table))
        yield table


def check_installed(engine):
    """Raises an ImportError that says what to install for an engine."""
    missing = [name for name in ENGINES[engine] if not importlib.util.find_spec(name)]
    extras = "scale,ray" if "ray" in missing else "scale"
    if missing:
        raise ImportError(f"needs {', '.join(missing)}: pip install -e '.[{extras}]'")
