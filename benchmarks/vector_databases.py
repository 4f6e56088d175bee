"""Whether codes, a Lance table and Qdrant find what exact search finds in a million vectors.

    python benchmarks/vector_databases.py

Writes the collection of `benchmarks/scale.py`, indexes it by each of `--factories`, exports it as
`python -m tfdml.scale export` does, and prints of each the share of the 10 nearest of `--queries`
rows that are those of an exact search in float32, its size, and the milliseconds of a query. Qdrant
is in its local mode, which commits each point to the disk (give `--folder /dev/shm`) and compares a
query with every vector in NumPy.
"""

import argparse
import pathlib
import tempfile
import time

import numpy as np
from scale import write

from tfdml.scale import Collection, StoredIndex
from tfdml.scale.exporting import QDRANT_NAME, export
from tfdml.scale.indexing import build

NEAREST = 10
FACTORIES = {  # and parameters: exact, 16 and 8 bits a number, 1 bit with the nearest rescored
    "Flat": "",
    "SQfp16": "",
    "SQ8": "",
    "RaBitQ,Refine(SQfp16)": "k_factor_rf=20",
    "IVF1024,SQ8": "nprobe=32",
}


def size_of(path):
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files) / 1e6


def nearest_ids(collection, queries):
    """The ids of the rows nearest to queries, of all of them, without an order."""
    ids, scores = np.empty((len(queries), 0), int), np.empty((len(queries), 0))
    for chunk in collection.chunks():
        rows = chunk.embeddings.astype(np.float64)
        found = (rows**2).sum(axis=1) - 2 * queries @ rows.T
        ids = np.concatenate([ids, np.tile(chunk.ids, (len(queries), 1))], axis=1)
        scores = np.concatenate([scores, found], axis=1)
        best = np.argpartition(scores, NEAREST, axis=1)[:, :NEAREST]
        ids, scores = (np.take_along_axis(each, best, axis=1) for each in (ids, scores))
    return ids.tolist()


def compare(name, megabytes, search, queries, exact):
    """Prints how far a function of a query to ids agrees with those of an exact search."""
    began = time.perf_counter()
    found = [search(query) for query in queries]
    each = 1000 * (time.perf_counter() - began) / len(queries)
    shares = [len({*a} & {*b}) / NEAREST for a, b in zip(found, exact, strict=True)]
    print(f"{name:32} {np.mean(shares):8.4f} {megabytes:9.1f} MB {each:9.1f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--factories", nargs="*", default=list(FACTORIES))
    parser.add_argument("--tables", nargs="*", default=["lance", "qdrant"])
    parser.add_argument("--precisions", nargs="*", default=["float32", "float16"])
    parser.add_argument("--folder", help="for what is written; of a disk in memory for Qdrant")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        folder = pathlib.Path(folder)
        stored = folder / "collection"
        stored.mkdir()
        write(stored, arguments.rows, arguments.dim)
        collection = Collection(stored)
        rng = np.random.default_rng(1)
        queries = collection.rows(rng.permutation(arguments.rows)[: arguments.queries])
        queries += 0.05 * rng.standard_normal(queries.shape, np.float32)
        exact = nearest_ids(collection, queries)
        for factory in arguments.factories:
            build(collection, factory, parameters=FACTORIES.get(factory), overwrite=True)
            index = StoredIndex(collection)
            search = lambda query, index=index: index.nearest(query, NEAREST)[0].tolist()  # noqa: E731
            compare(factory, index.bytes / 1e6, search, queries, exact)
        for to in arguments.tables:
            for precision in arguments.precisions:
                out = folder / f"{to}_{precision}"
                export(stored, to, str(out), precision)
                name = f"{to}, {precision}"
                compare(name, size_of(out), SEARCHES[to](out), queries, exact)


def in_lance(path):
    import lance  # an optional dependency, as Qdrant's client

    table = lance.dataset(path)

    def search(query):
        asked = {"column": "vector", "q": query, "k": NEAREST}
        return table.to_table(columns=["id", "_distance"], nearest=asked)["id"].to_pylist()

    return search


def in_qdrant(path):
    import qdrant_client

    client = qdrant_client.QdrantClient(path=str(path))

    def search(query):
        found = client.query_points(QDRANT_NAME, query.tolist(), limit=NEAREST).points
        return [point.id for point in found]

    return search


SEARCHES = {"lance": in_lance, "qdrant": in_qdrant}


if __name__ == "__main__":
    main()
