"""Time and memory of a collection of 1,000,000 × 128: its index, and 100,000 queries in it.

    python benchmarks/scale.py

Writes rows around class centres, 100 rows each, as `python -m tfdml.scale embed` writes embeddings.
Prints the seconds of the index and of what it loses, of Recall@{1, 10, 100}, MAP@R and
R-precision of the queries in the whole collection, exactly and through the index; and the memory
that each adds, without memory-mapped files. The limit is 1 GB for the index and for the evaluation.
"""

import argparse
import json
import pathlib
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from peak_memory import timed
from tqdm import tqdm

from tfdml.scale import (
    Collection,
    Gallery,
    StoredIndex,
    retrieval_scores_per_query,
    scores_through_index,
)
from tfdml.scale.indexing import build, print_losses

PER_CLASS = 100
SHARD_SIZE = 10_000
SPREAD = 1.5  # of a class, beside centres of standard normal numbers
METRICS = ("recall", "map@r", "r_precision")


def printed(name, function, *arguments, **options):
    """Prints the seconds of a call and the memory that it added; returns its result."""
    result, seconds, memory = timed(lambda: function(*arguments, **options), "RssAnon:")
    print(f"{name:34} {seconds:8.1f} s   +{memory:.2f} GB", flush=True)
    return result


def write(folder, rows, dim, seed=0):
    """Writes a collection, shard by shard."""
    rng = np.random.default_rng(seed)
    classes = -(-rows // PER_CLASS)
    centres = rng.standard_normal((classes, dim), dtype=np.float32)
    labels = rng.permutation(np.arange(rows) % classes)
    texts, paths = pa.array(labels.astype(str)), pa.array([f"{i:09d}.jpg" for i in range(rows)])
    (folder / "shards").mkdir()
    pq.write_table(pa.table({"path": paths, "label": texts}), folder / "list.parquet")
    shards = -(-rows // SHARD_SIZE)
    for number in tqdm(range(shards), desc="Writing", unit="shard", delay=2):
        ids = np.arange(number * SHARD_SIZE, min((number + 1) * SHARD_SIZE, rows))
        made = centres[labels[ids]] + SPREAD * rng.standard_normal((len(ids), dim), np.float32)
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(made.reshape(-1)), dim)
        shard = {"id": ids, "path": paths.take(ids), "embedding": vectors}
        shard |= {"label": texts.take(ids), "error": pa.nulls(len(ids), pa.string())}
        pq.write_table(pa.table(shard), folder / "shards" / f"{number:05d}.parquet")
    manifest = {"format": 1, "model": "none", "dim": dim, "images": rows, "list": "none"}
    manifest |= {"shard_size": SHARD_SIZE, "shards": shards}
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    return labels


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--factory", default="IVF4096,SQ8")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        labels = write(pathlib.Path(folder), arguments.rows, arguments.dim)
        collection = Collection(folder)
        printed(f"index {arguments.factory}", build, collection, arguments.factory)
        index = StoredIndex(collection)
        print(f"{index.bytes / len(index):.1f} bytes per vector")
        printed("report of 1,000 queries", print_losses, collection, index, 0)
        own = np.random.default_rng(1).permutation(arguments.rows)[: arguments.queries]
        own.sort()
        given = collection.rows(own), labels[own].astype(str).tolist(), (1, 10, 100)
        gallery = Gallery(collection)
        name, options = f"{len(own):,} queries", {"metrics": METRICS, "own": own}
        exact = printed(f"{name}, exact", retrieval_scores_per_query, gallery, *given, **options)
        print({name: round(float(of.mean()), 4) for name, of in exact.items()})
        found = printed(
            f"{name}, by the index", scores_through_index, gallery, index, *given, **options
        )
        print({name: round(float(of.mean()), 4) for name, of in found[0].items()})
        print("lost on 1,000 queries:", found[1]["lost"])


if __name__ == "__main__":
    main()
