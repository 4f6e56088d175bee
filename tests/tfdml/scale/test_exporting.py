"""Collections in the formats of other tools, read by their own clients."""

import numpy as np
import programs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stored_collections import write_collection

from tfdml.scale import __main__ as command


def exported(collection, to, out, *arguments):
    result = programs.run(
        command.main, "export", collection.folder, out, "--to", to, *arguments, cwd="."
    )
    assert result.code == 0, result.err
    assert f"597 images: {out}" in result.out


def nearest(collection, row, count):
    """The ids of the images nearest to a row, exactly."""
    (rows,) = collection.chunks()
    distances = ((rows.embeddings - row) ** 2).sum(axis=1)
    return rows.ids[distances.argsort()[:count]].tolist()


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_parquet_file_has_the_readable_images(precision, clustered, tmp_path):
    out = tmp_path / "photos.parquet"
    exported(clustered, "parquet", out, "--precision", precision)
    table = pq.read_table(out)
    (rows,) = clustered.chunks()
    assert table["id"].to_pylist() == rows.ids.tolist()
    assert table.schema.field("vector").type == pa.list_(pa.from_numpy_dtype(precision), 16)
    found = table["vector"].combine_chunks().flatten().to_numpy().reshape(-1, 16)
    assert abs(found - rows.embeddings).max() < (1e-3 if precision == "float16" else 1e-9)
    listed = clustered.columns("path", "label").take(rows.ids)
    assert table.select(["path", "label"]).equals(listed.cast(table.select([1, 2]).schema))
    again = programs.run(command.main, "export", clustered.folder, out, cwd=".")
    assert f"{out} exists: choose another place" in again.sentence


def test_a_collection_without_images_is_a_file_without_rows(tmp_path):
    empty = write_collection(tmp_path / "none", np.zeros((0, 4)), [])
    out = tmp_path / "none.parquet"
    result = programs.run(command.main, "export", empty.folder, out, cwd=".")
    assert result.out.startswith("0 images: ")
    assert pq.read_table(out).num_rows == 0


def test_a_lance_table_finds_what_is_nearest(clustered, tmp_path):
    lance = pytest.importorskip("lance")
    exported(clustered, "lance", tmp_path / "photos.lance")
    row = clustered.rows([7])[0]
    asked = {"column": "vector", "q": row, "k": 5}
    found = lance.dataset(tmp_path / "photos.lance").to_table(nearest=asked)
    assert found["id"].to_pylist() == nearest(clustered, row, 5)


@pytest.mark.slow  # imports its client for seconds
def test_a_collection_of_qdrant_finds_what_is_nearest(clustered, tmp_path):
    qdrant_client = pytest.importorskip("qdrant_client")
    exported(clustered, "qdrant", tmp_path / "photos")
    row = clustered.rows([7])[0]
    client = qdrant_client.QdrantClient(path=str(tmp_path / "photos"))
    found = client.query_points("tfdml", row.tolist(), limit=5).points
    assert [point.id for point in found] == nearest(clustered, row, 5)
    assert found[0].payload["path"] == "images/7.png"
    client.close()


def test_what_cannot_be_exported_is_rejected(clustered, tmp_path):
    def rejected(*arguments):
        return programs.run(command.main, "export", clustered.folder, *arguments, cwd=".").sentence

    assert "`out` must be a path for lance" in rejected("s3://bucket/x", "--to", "lance")
    (clustered.folder / "shards" / "00001.parquet").unlink()
    assert "must hold all of its 10 shards" in rejected(tmp_path / "x")
