import numpy as np
import pyarrow.parquet as pq
import pytest
from stored_collections import rewrite, write_collection

from tfdml.scale import Collection
from tfdml.scale import collection as module
from tfdml.scale.layout import is_collection


def test_reads_what_was_written(tmp_path, rng, monkeypatch):
    rows = rng.normal(size=(20, 4)).astype(np.float32)
    unreadable = (0, 7, 12, 13)
    labels = ["a"] * 20
    written = write_collection(tmp_path / "c", rows, labels, shard_size=6, unreadable=unreadable)
    assert is_collection(written.folder)
    assert (written.dim, written.images, written.shards) == (4, 20, 4)
    kept = [i for i in range(20) if i not in unreadable]
    assert np.flatnonzero(written.readable()).tolist() == kept
    for size in (1, 3, 5, 100):  # rows of a chunk, across shards
        monkeypatch.setattr(module, "_CHUNK_BYTES", size * 16)
        chunks = list(written.chunks())
        assert np.concatenate([chunk.ids for chunk in chunks]).tolist() == kept
        np.testing.assert_array_equal(np.concatenate([c.embeddings for c in chunks]), rows[kept])
        assert max(len(chunk.ids) for chunk in chunks) <= size
    np.testing.assert_array_equal(written.rows([19, 2, 2]), rows[[19, 2, 2]])
    with pytest.raises(KeyError, match="has no embedding"):
        written.rows([7])


def test_draws_the_same_rows_from_as_many_shards_as_it_needs(clustered, monkeypatch):
    ids, rows = clustered.sample(100, seed=3)
    again, _ = clustered.sample(100, seed=3)
    other, _ = clustered.sample(100, seed=4)
    assert ids.tolist() == again.tolist() != other.tolist()
    assert 95 <= len(np.unique(ids)) == len(ids) <= 100
    assert set(ids // 64) == set(range(10))
    np.testing.assert_array_equal(rows, clustered.rows(ids))
    monkeypatch.setattr(module, "_SAMPLED_SHARDS", 2)
    assert len(set(clustered.sample(50, seed=3).ids // 64)) == 2
    assert len(set(clustered.sample(600, seed=3).ids // 64)) == 10


def test_a_short_shard_gives_its_share_of_a_sample(tmp_path, rng):
    rows = rng.normal(size=(105, 4)).astype(np.float32)
    written = write_collection(tmp_path / "c", rows, [None] * 105, shard_size=50)
    ids, _ = written.sample(63, seed=0)
    assert np.bincount(ids // 50).tolist() == [30, 30, 3]
    assert len(written.sample(105, seed=0).ids) == 105


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": 3}, "must be of the format 1 or 2. Received: format=3"),
        ({"dim": 15}, r"must have the `dim` of the manifest. Received: dim=15, dims=\[16\]"),
        ({"shard_size": 60}, "must hold the images 0 to 59 in order. Received: rows=64"),
        ({"images": 601}, "must hold the images 576 to 600 in order. Received: rows=24"),
    ],
)
def test_rejects_a_manifest_that_the_files_do_not_fit(clustered, changed, message):
    rewrite(clustered.folder / "manifest.json", **changed)

    def read():
        opened = Collection(clustered.folder)
        return opened.shard(0), opened.shard(9)

    with pytest.raises(ValueError, match=message):
        read()


def test_rejects_what_is_no_collection(tmp_path, clustered):
    with pytest.raises(FileNotFoundError, match=r"tfdml\.scale embed"):
        Collection(tmp_path)
    with pytest.raises(ValueError, match=r"copy it there.*folder='s3://bucket/embeddings'"):
        Collection("s3://bucket/embeddings")
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(ValueError, match="is not the manifest"):
        Collection(tmp_path)
    (clustered.folder / "shards/00001.parquet").write_bytes(b"no table")
    with pytest.raises(ValueError, match=r"00001\.parquet is not a shard that can be read"):
        clustered.shard(1)
    path = clustered.folder / "shards/00002.parquet"
    pq.write_table(pq.read_table(path).drop(["embedding"]), path)
    with pytest.raises(ValueError, match=r"00002.parquet"):
        clustered.shard(2)
