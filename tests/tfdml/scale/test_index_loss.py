import numpy as np
import pytest
from stored_collections import write_collection

from tfdml.evaluation import nearest_neighbours
from tfdml.scale import StoredIndex
from tfdml.scale import collection as reading
from tfdml.scale.index_loss import losses
from tfdml.scale.indexing import build


@pytest.fixture
def written(tmp_path, rng):
    rows = rng.normal(size=(400, 8)).astype(np.float32)
    return write_collection(tmp_path / "c", rows, [None] * 400, shard_size=50)


def test_counts_the_neighbours_that_are_found(written, monkeypatch):
    monkeypatch.setattr(reading, "_CHUNK_BYTES", 8 * 4 * 90)
    build(written, "IVF8,SQ8", parameters="nprobe=2")
    index = StoredIndex(written)
    found = {loss.parameters: loss for loss in losses(written, index, queries=60)}
    assert list(found) == ["nprobe=1", "nprobe=2", "nprobe=4"]
    assert index.parameters == "nprobe=2"
    own, asked = written.sample(60, 0)
    nearest = nearest_neighbours(written.rows(np.arange(400)), 100)[own]
    for parameters, loss in found.items():
        index.set_parameters(parameters)
        ids, _ = index.search(asked, 101)
        for count in (1, 10, 100):
            hits = [
                len(set(near[:count]) & set(row[row != key][:count]))
                for key, near, row in zip(own, nearest, ids, strict=True)
            ]
            assert loss.recall[count] == pytest.approx(np.mean(hits) / count)
    recalls = [loss.recall[10] for loss in found.values()]
    assert 0.2 < recalls[0] < recalls[1] < recalls[2] < 1
    assert all(loss.milliseconds > 0 for loss in found.values())


@pytest.mark.parametrize(
    ("factory", "own", "compared"),
    [
        ("IVF8,SQ8", "nprobe=3", ["nprobe=1", "nprobe=3", "nprobe=4"]),
        ("HNSW8", "efSearch=20", ["efSearch=16", "efSearch=20", "efSearch=64", "efSearch=256"]),
        ("Flat", None, [""]),
    ],
)
def test_the_parameters_of_the_index_are_among_those_compared(written, factory, own, compared):
    build(written, factory, parameters=own)
    found = [loss.parameters for loss in losses(written, StoredIndex(written), queries=5)]
    assert found == compared


def test_duplicates_at_the_border_count_as_found(tmp_path):
    rows = np.repeat(np.eye(4, dtype=np.float32), 30, axis=0)
    collection = write_collection(tmp_path / "c", rows, [None] * 120, shard_size=50)
    build(collection, "Flat")
    [loss] = losses(collection, StoredIndex(collection), queries=10)
    assert loss.recall == {1: 1.0, 10: 1.0, 100: 1.0}
