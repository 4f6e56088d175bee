import numpy as np
import pyarrow as pa
import pytest

from tfdml.scale.listed_images import Listing
from tfdml.scale.storage import NO_FILE
from tfdml.scale.writing import CollectionWriter, rows_of

IDENTITY = {"model": "m", "dim": 2, "shard_size": 3}


def listing_of(paths):
    table = pa.table({"path": paths, "label": ["x"] * len(paths)})
    return Listing(table.to_batches)


LISTING = listing_of(["/0", "/1", "/2", "/3"])


@pytest.fixture
def begun(tmp_path):
    collection = CollectionWriter(tmp_path / "out")
    collection.begin(IDENTITY, LISTING)
    return collection


def rows(first, last, problems=None):
    embeddings = np.zeros((last - first, 2))
    return rows_of(range(first, last), embeddings, problems or [None] * (last - first))


@pytest.mark.parametrize(
    "wrong", [rows(0, 2), rows(1, 4), pa.concat_tables([rows(0, 2), rows(1, 2)])]
)
def test_lost_and_repeated_rows_are_noticed(wrong, begun):
    with pytest.raises(RuntimeError, match="shard 0 must have one row for each image, in order"):
        begun.write_shard(0, next(LISTING.shards(3)), wrong)
    assert begun.missing() == [0, 1]


def test_a_shard_of_which_no_image_can_be_read_is_rejected(tmp_path):
    listing = listing_of([f"/{i}" for i in range(199)])
    writer, [first, second] = CollectionWriter(tmp_path / "out"), listing.shards(100)
    writer.begin({**IDENTITY, "shard_size": 100}, listing)
    with pytest.raises(ValueError, match=r"such as /0: there is no such file \(is their disk"):
        writer.write_shard(0, first, rows(0, 100, [NO_FILE] * 100))
    with pytest.raises(ValueError, match=r"can be read, such as /0: it is empty$"):
        writer.write_shard(0, first, rows(0, 100, ["it is empty"] * 100))
    writer.write_shard(0, first, rows(0, 100, [NO_FILE] * 99 + [None]))
    writer.write_shard(1, second, rows(100, 199, [NO_FILE] * 99))


def test_a_folder_of_other_embeddings_is_rejected(begun):
    begun.check(IDENTITY)
    begun.check(IDENTITY, LISTING)
    for other in ({"model": "n"}, {"dim": 3}, {"shard_size": 4}):
        message = f"holds embeddings of another {next(iter(other))}. Choose another --out$"
        with pytest.raises(ValueError, match=message):
            begun.check({**IDENTITY, **other}, LISTING)
    with pytest.raises(ValueError, match=r"of another list.*--images .*/list.parquet"):
        begun.check(IDENTITY, listing_of(["/0", "/1", "/2", "/4"]))


def test_a_stop_at_the_beginning_is_made_good(begun, tmp_path):
    (tmp_path / "out" / "list.parquet").unlink()
    (tmp_path / "out" / "list.parquet.0a.unfinished").touch()
    begun.begin(IDENTITY, LISTING)
    assert begun.folder.names() == {"manifest.json", "list.parquet"}
