"""Embeds and indexes image collections that do not fit in the memory of one machine.

    python -m tfdml.scale embed --model saved_models/NAME/1 --images photos --out embeddings
    python -m tfdml.scale index embeddings --factory IVF4096,SQ8
    python -m tfdml.scale check embeddings
    python -m tfdml.scale export embeddings photos.lance --to lance
    python -m tfdml.scale update embeddings --model saved_models/NAME/1 --images photos
    python -m tfdml.scale remove embeddings --where "label = 'cat' and price < 20"

embed   writes the embeddings of a collection to a folder of Parquet files
index   builds an index of them, on disk
check   reads all of these files and names those that are damaged
export  copies the embeddings to a Parquet file, a Lance table or Qdrant
add     embeds images that a collection does not have
update  makes it the collection of a list: adds, embeds changed images again, and removes
remove  takes images out of it

Each has --help. docs/scale.md describes the files.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
from typing import ClassVar, Literal

from tfdml import scale
from tfdml.command_line import Parser, PositiveInt, Seed, Settings, command_of, fail, one_sentence
from tfdml.quiet import import_tensorflow, keep_printing
from tfdml.serving.exported import find_version, fingerprint
from tfdml.serving.versions import name_of

PROGRAM = "tfdml.scale"
CONTINUE = "run the same command to continue"
FEW_COPIES = 10  # that are named
FEW = 40 * 4096  # images; the cells of the default index would have too few of fewer to learn from


@dataclasses.dataclass(frozen=True)
class Embed:
    """Model, images and output folder.

    Args:
        model: A run's folder in `saved_models/`, for its newest version, or one version.
        images: A folder, whose images are found in all folders below it, labelled by the first of
            these; a pattern in quotes, such as `'photos/**/*.jpg'`, without labels; or a Parquet
            file with a column `path` and perhaps `label` and others. URLs such as s3://bucket/photos
            need the package of their file system, such as s3fs.
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
    engine: Literal["local", "ray"] = "local"
    address: str | None = None
    shard_size: PositiveInt = 10_000

    def __post_init__(self):
        if self.address and self.engine != "ray":
            raise ValueError("`address` is that of a Ray cluster: give --engine ray")


@dataclasses.dataclass(frozen=True)
class Stored(Settings):
    """A collection.

    Args:
        folder: Folder that `python -m tfdml.scale embed` wrote; its index, if any, is its `index/`.
    """

    paths: ClassVar = ("folder",)

    folder: str


@dataclasses.dataclass(frozen=True)
class Index(Stored):
    """Collection and index.

    Args:
        factory: Index of faiss. `IVF4096,SQ8` has 4,096 cells of the space, of which a query visits
            some, and 8 bits for each number of an embedding. An index with cells (`IVF`) stays on
            disk; others (`Flat`, `SQ8`, `PQ64`, `HNSW32`) are built in memory.
            docs/scale.md says which to choose.
        parameters: Of the search, such as `nprobe=64`, stored with the index; if not given the
            square root of the number of cells are visited.
        training_rows: Images that cells and codes are learned from; if not given 40 for each cell,
            at least 65,536, in at most 256 MiB.
        seed: Seed of their draw, and of the queries of `report`.
        report: Also compare 1,000 queries with exact search: the recall of neighbours that the
            index loses and its time, for a few `parameters`. It reads all embeddings once more.
        overwrite: Replace an index of other settings, once the new one is whole.
    """

    factory: str = "IVF4096,SQ8"
    parameters: str | None = None
    training_rows: PositiveInt | None = None
    seed: Seed = 0
    report: bool = False
    overwrite: bool = False


@dataclasses.dataclass(frozen=True)
class Change(Stored):
    """Collection, model and images.

    Args:
        model: The model that made its embeddings.
        images: As of `embed`. A path that the collection has is not added again.
    """

    paths: ClassVar = ("folder", "model", "images")

    model: str | None = None
    images: str | None = None

    def __post_init__(self):
        self.check(self.model and self.images, "`model` and `images` must be given")


@dataclasses.dataclass(frozen=True)
class Remove(Stored):
    """Collection and images to remove.

    Args:
        where: Condition in SQL on `path`, `label`, `id` and the other columns of the list, such as
            "label = 'cat' and price < 20".
    """

    where: str | None = None

    def __post_init__(self):
        self.check(self.where, "`where` must be given")


@dataclasses.dataclass(frozen=True)
class Export(Stored):
    """Collection and where to copy it.

    Args:
        to: `parquet`, a file; `lance`, a table (`pip install -e ".[lance]"`); or `qdrant`, the
            collection `tfdml` (`pip install -e ".[qdrant]"`). Each image that could be read has
            `id`, its row in the list, `path`, `label` and `vector`.
        out: Path to write to, which must not exist; of Qdrant the folder of its local mode, or the
            URL of a server.
        precision: `float32` or `float16`, of the stored vectors.
    """

    paths: ClassVar = ("folder", "out")

    out: str
    to: Literal["parquet", "lance", "qdrant"] = "parquet"
    precision: Literal["float32", "float16"] = "float32"


def main(arguments=None):
    keep_printing()
    command, arguments = command_of(PROGRAM, __doc__, COMMANDS, arguments)
    run, kind = COMMANDS[command]
    texts = {"prog": f"{PROGRAM} {command}", "description": run.__doc__}
    parser = Parser(kind, as_positional=kind is not Embed, **texts)
    settings = parser.settings_of(parser.parse_args(arguments))
    errors = [ValueError, TypeError, OSError, ImportError]
    if kind in (Embed, Change) and "://" in str(vars(settings).values()):
        errors = [Exception]  # clients of networks raise many types
    with one_sentence(parser.prog, *errors, stopped="stopped: the same command resumes it"):
        run(parser.prog, settings, errors)


def embed(program, settings, errors):
    """Writes the embeddings of a collection of images to a folder of Parquet files."""
    version = find_version(pathlib.Path(settings.model))
    collection, connected = scale.CollectionWriter(settings.out), contextlib.nullcontext()
    work = None
    if settings.engine == "ray":
        from tfdml.scale import ray_engine  # an optional dependency

        os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # for the actors
        connected = ray_engine.connected(settings.address)
        work = functools.partial(ray_engine.embedded, version)
    import_tensorflow()
    model = scale.image_model.ImageModel(version)
    identity = {"model": model.fingerprint, "dim": model.dim, "shard_size": settings.shard_size}
    collection.check(identity)  # before listing, which may take minutes
    listing = scale.listed_images.list_images(settings.images)
    work = work or functools.partial(scale.writing.embedded, model)
    stop = {"code": 1, "hint": f"; {CONTINUE}", "stopped": f"stopped: {CONTINUE}"}
    with connected, collection.folder.only_writer():
        collection.check(identity, listing)
        with one_sentence(program, RuntimeError, *errors, **stop):
            collection.begin(identity, listing)
            scale.writing.embed_missing(collection, listing, model.batch_size, work)
            unreadable = collection.finish()
    readable = listing.images - unreadable
    hint = ": see `error` in the shards" if unreadable else ""
    print(f"Embedded {readable:,} images with {name_of(version)}: {settings.out}")
    print(f"Could not read {unreadable:,} images{hint}")
    if not readable:
        fail(program, f"no image of {settings.images} could be read", code=1)
    if "://" in settings.out:
        print("Next: copy it to a disk, and there: python -m tfdml.scale index FOLDER")
    else:
        few = " --factory Flat" if readable < FEW else ""
        print(f"Next: python -m tfdml.scale index {settings.out}{few}")


def index(_program, settings, _errors):
    """Builds the index of a collection, and resumes it after an interruption."""
    scale.indexing.index(**vars(settings))


def check(program, settings, _errors):
    """Reads all files of a collection and of its index, and names those that are damaged."""
    files, unknown, damaged = scale.indexing.damaged_files(settings.folder)
    for sentence in damaged:
        print(sentence)
    if damaged:
        fail(program, f"{len(damaged):,} of {files:,} files are missing or damaged", code=1)
    print(f"All {files - unknown:,} files with a checksum are whole: {settings.folder}")
    if unknown:
        print(f"{unknown:,} files of an earlier version have no checksum")


def export(_program, settings, _errors):
    """Copies the embeddings of a collection to the format of another tool."""
    count = scale.exporting.export(**vars(settings))
    print(f"{count:,} images: {settings.out}")


def add(_program, settings, _errors):
    """Embeds the images of a list that a collection does not have, and adds them."""
    _change(settings, scale.changing.add)


def update(_program, settings, _errors):
    """Makes a collection that of a list: adds, embeds changed images again, and removes."""
    _change(settings, scale.changing.update)


def _change(settings, change):
    version = find_version(pathlib.Path(settings.model))
    import_tensorflow()
    scale.Collection(settings.folder).check_model(fingerprint(version))  # before it is loaded
    model = scale.image_model.ImageModel(version)
    done = change(settings.folder, model, settings.images)
    print(f"{done.added:,} images added, {done.embedded_again:,} embedded again", end="")
    print(f", {done.removed:,} removed: {settings.folder}\nCould not read {done.unreadable:,}")
    for path, other in done.copies[:FEW_COPIES]:
        print(f"{path} is a copy of {other}")
    if len(done.copies) > FEW_COPIES:
        print(f"... {len(done.copies):,} copies in all")


def remove(_program, settings, _errors):
    """Removes images from a collection; their files stay."""
    print(f"{scale.changing.remove(**vars(settings)):,} images removed: {settings.folder}")


COMMANDS = {
    "embed": (embed, Embed),
    "index": (index, Index),
    "check": (check, Stored),
    "export": (export, Export),
    "add": (add, Change),
    "update": (update, Change),
    "remove": (remove, Remove),
}


if __name__ == "__main__":
    main()
