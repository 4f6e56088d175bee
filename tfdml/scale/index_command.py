"""The command `index` of `python -m tfdml.scale`."""

import dataclasses
from typing import ClassVar

from tfdml.checks import check
from tfdml.command_line import Parser, one_sentence
from tfdml.files import locked

PROGRAM = "tfdml.scale index"


@dataclasses.dataclass(frozen=True)
class Indexing:
    """Collection and index.

    Args:
        folder: Folder that `python -m tfdml.scale embed` wrote; the index is its `index/`.
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

    paths: ClassVar = ("folder",)

    folder: str
    factory: str = "IVF4096,SQ8"
    parameters: str | None = None
    training_rows: int | None = None
    seed: int = 0
    report: bool = False
    overwrite: bool = False

    def __post_init__(self):
        check(self.factory, "`factory` must be the name of an index", factory=self.factory)
        check(self.seed >= 0, "`seed` must be >= 0", seed=self.seed)
        valid = self.training_rows is None or self.training_rows > 0
        check(valid, "`training_rows` must be > 0", training_rows=self.training_rows)


def main(arguments=None):
    parser = Parser(Indexing, prog=PROGRAM, description=index.__doc__)
    settings = parser.settings_of(parser.parse_args(arguments))
    stopped = "stopped: the same command resumes it"
    with one_sentence(PROGRAM, ValueError, TypeError, OSError, ImportError, stopped=stopped):
        index(settings)


def index(settings):
    """Builds the index of a collection, and resumes it after an interruption."""
    from tfdml.scale.collection import Collection
    from tfdml.scale.index import StoredIndex
    from tfdml.scale.indexing import build

    collection = Collection(settings.folder)
    names = ("parameters", "training_rows", "seed", "overwrite")
    options = {name: getattr(settings, name) for name in names}
    taken = f"another job works on {collection.folder}: wait for its end, or stop it"
    with locked(collection.folder, taken):
        built = build(collection, settings.factory, **options)
        stored = StoredIndex(collection)
    each = stored.bytes / max(1, len(stored))
    words = "Index" if built else "The index was there"
    print(f"{words}: {len(stored):,} images, {each:,.1f} bytes each: {stored.folder}")
    if stored.parameters:
        print(f"Searches use {stored.parameters}")
    if settings.report:
        report(collection, stored, settings.seed)


def report(collection, stored, seed):
    """Prints what the index loses."""
    from tfdml.scale.loss import losses

    found = losses(collection, stored, seed=seed)
    counts = list(found[0].recall)
    print("The share of the K nearest images that is lost, and the median time of a query:")
    print(f"{'':16}" + "".join(f"{f'K={count}':>9}" for count in counts) + f"{'ms':>9}")
    for parameters, recall, milliseconds in found:
        lost = "".join(f"{1 - recall[count]:9.4f}" for count in counts)
        chosen = " (stored)" if parameters == stored.parameters else ""
        print(f"{parameters or stored.factory:16}{lost}{milliseconds:9.2f}{chosen}")
