"""Copies a collection to a Parquet file, a Lance table or a collection of Qdrant."""

# pyright: reportMissingImports=false

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

from tfdml.checks import check, check_one_of
from tfdml.files import check_file, replacing
from tfdml.quiet import progress
from tfdml.scale.collection import Collection

QDRANT_NAME = "tfdml"  # of the collection of Qdrant
_BATCH = 1000  # points of a request to Qdrant


def export(folder, to, out, precision="float32"):
    """Writes the images of a collection that have an embedding; returns their number.

    Each has `id`, its row in the list, `path`, `label` and `vector`, of float32 or float16 numbers.

    Args:
        folder: Folder of the collection.
        to: `parquet` for a file, `lance` for a table; or `qdrant`, for a collection `tfdml` that
            ranks by the Euclidean distance.
        out: Path that does not exist; of Qdrant a folder for its local mode, or the server's URL.
        precision: `float32` or `float16`.

    Raises:
        FileExistsError: If `out`, or the server's collection, exists.
        ImportError: If the client of the format is not installed.
        ValueError: If an argument is not one of these, or the collection is not complete.
    """
    check_one_of(_WRITERS, to=to)
    check_one_of(("float32", "float16"), precision=precision)
    collection = Collection(folder)
    collection.check_complete()
    if "://" not in out:
        if pathlib.Path(out).exists():
            raise FileExistsError(f"{out} exists: choose another place")
        check_file(out=pathlib.Path(out))
    else:
        check(to == "qdrant", f"`out` must be a path for {to}", out=out)
    numbers = progress("Exporting", range(collection.shards), unit="shard")
    vectors = pa.list_(pa.from_numpy_dtype(precision), collection.dim)
    schema = pa.schema([("id", pa.int64()), ("path", pa.string()), ("label", pa.string())])
    schema = schema.append(pa.field("vector", vectors))
    tables = (collection.table(number).cast(schema) for number in numbers)
    _WRITERS[to](tables, schema, out)
    return int(collection.readable().sum())


def _write_parquet(tables, schema, out):
    path = pathlib.Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished, pq.ParquetWriter(unfinished, schema) as writer:
        for table in tables:
            writer.write_table(table)


def _write_lance(tables, schema, out):
    import lance  # an optional dependency, as Qdrant's client

    batches = (batch for table in tables for batch in table.to_batches())
    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches), out)


def _write_qdrant(tables, schema, out):
    from qdrant_client import QdrantClient, models

    client = QdrantClient(**{"url" if "://" in out else "path": out})
    vector = schema.field("vector").type
    stored = models.Datatype(f"float{vector.value_type.bit_width}")
    kind = {"distance": models.Distance.EUCLID, "datatype": stored}
    if client.collection_exists(QDRANT_NAME):
        raise FileExistsError(f"{out} has a collection {QDRANT_NAME}: choose another place")
    config = models.VectorParams(size=vector.list_size, **kind)
    client.create_collection(QDRANT_NAME, vectors_config=config)
    for table in tables:
        rows = table["vector"].combine_chunks()
        rows = rows.flatten().to_numpy(zero_copy_only=False).reshape(-1, vector.list_size)
        texts = table.select(["path", "label"]).to_pylist()
        ids = table["id"].to_pylist()
        client.upload_collection(QDRANT_NAME, rows, texts, ids, batch_size=_BATCH)
    client.close()


_WRITERS = {"parquet": _write_parquet, "lance": _write_lance, "qdrant": _write_qdrant}
