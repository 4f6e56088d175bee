"""The index of a collection: ids, resuming, and what cannot be built."""

import json
import shutil

import numpy as np
import pytest
from stored_collections import rewrite, write_collection

from tfdml.scale import Collection, StoredIndex, indexing
from tfdml.scale.indexing import UNFINISHED, build


@pytest.fixture(autouse=True)
def _in_parts(monkeypatch):
    monkeypatch.setattr(indexing, "_PART_BYTES", 4 * 16 * 64 * 3)  # of three shards


@pytest.mark.parametrize("factory", ["Flat", "IVF8,Flat", "HNSW32"])
def test_finds_what_the_euclidean_distance_finds(tmp_path, rng, factory):
    rows = rng.normal(size=(300, 8)) * rng.uniform(1, 30, (300, 1))
    options = {"shard_size": 40, "unreadable": (0, 50)}
    collection = write_collection(tmp_path / "c", rows, [None] * 300, **options)
    assert build(collection, factory, parameters="nprobe=8" if "IVF" in factory else "")
    index = StoredIndex(collection)
    assert len(index) == 298
    found, distances = index.search(collection.rows([7, 299]), 5)
    exact = np.linalg.norm(rows - rows[[7, 299], None], axis=2)
    exact[:, [0, 50]] = np.inf
    nearest = np.argsort(exact, axis=1)[:, :5]
    assert found.tolist() == nearest.tolist()
    exact = np.take_along_axis(exact, nearest, axis=1)
    np.testing.assert_allclose(distances, exact, rtol=1e-5, atol=2e-3)


@pytest.mark.parametrize(
    "factory", ["SQ8", "PCA8,IVF8,SQ8", "PCA8,HNSW8", "HNSW8_SQ8,RFlat", "IVF8_HNSW8,SQ8"]
)
def test_other_indexes_have_the_ids_of_the_rows(clustered, factory):
    build(clustered, factory)
    index = StoredIndex(clustered)
    ids = [1, 70, 598]
    found, _ = index.search(clustered.rows(ids), 20)
    assert all(key in near for key, near in zip(ids, found.tolist(), strict=True))
    assert not np.isin(found, [3, 64, 599]).any()
    assert not (clustered.folder / UNFINISHED).exists()
    about = json.loads((index.folder / "index.json").read_text())
    assert (about["factory"], about["rows"], about["shards"]) == (factory, 597, 10)


@pytest.mark.parametrize("factory", ["IVF8,SQ8", "SQ8"])
def test_a_stopped_job_is_resumed_and_adds_nothing_twice(clustered, factory, monkeypatch):
    monkeypatch.setattr(indexing, "_SAVED_EVERY", 0)
    monkeypatch.setattr(indexing, "_SAVING_RATIO", 0)
    added, add = [], indexing._add

    def stopping(index, rows):
        number = rows.ids[0] // 64
        added.append(number)
        if added.count(7) == 1 and number == 7:
            raise KeyboardInterrupt
        add(index, rows)

    monkeypatch.setattr(indexing, "_add", stopping)
    with pytest.raises(KeyboardInterrupt):
        build(clustered, factory)
    assert not (clustered.folder / "index").exists()
    trained = (clustered.folder / UNFINISHED / "trained.faiss").stat().st_mtime_ns
    del added[:-1]
    monkeypatch.setattr(indexing.shutil, "rmtree", lambda *_, **__: None)  # keeps the work
    assert build(clustered, factory)
    assert added[1:] == ([6, 7, 8, 9] if "IVF" in factory else [7, 8, 9])
    assert (clustered.folder / UNFINISHED / "trained.faiss").stat().st_mtime_ns == trained
    index = StoredIndex(clustered)
    index.set_parameters("nprobe=8" if index.cells else "")
    found, _ = index.search(clustered.rows([1]), 597)
    assert sorted(found[0]) == [i for i in range(600) if i not in (3, 64, 599)]


def test_an_index_of_other_settings_stays_until_it_may_be_replaced(clustered):
    assert build(clustered, "SQ8")
    assert not build(clustered, "SQ8")
    with pytest.raises(FileExistsError, match=r"--overwrite.*'factory': 'SQ8'"):
        build(clustered, "Flat")
    assert StoredIndex(clustered).factory == "SQ8"
    assert build(clustered, "IVF8,Flat", overwrite=True)
    assert StoredIndex(clustered).parameters == "nprobe=3"
    assert not build(clustered, "IVF8,Flat", parameters="nprobe=5")
    assert StoredIndex(clustered).parameters == "nprobe=5"
    assert not build(clustered, "IVF8,Flat")
    assert StoredIndex(clustered).parameters == "nprobe=5"
    (clustered.folder / "index" / "index.json").write_text("{")
    with pytest.raises(ValueError, match=r"index\.json is damaged .*--overwrite true"):
        build(clustered, "SQ8")
    assert build(clustered, "SQ8", overwrite=True)
    assert len(StoredIndex(clustered)) == 597
    assert {path.name for path in clustered.folder.glob("*index*")} == {"index"}


def test_a_full_disk_is_a_sentence_and_leaves_the_index(clustered, monkeypatch):
    build(clustered, "SQ8")
    usage = shutil.disk_usage(clustered.folder)
    monkeypatch.setattr(indexing.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(OSError, match=r"is too small: the index needs .* GB more"):
        build(clustered, "Flat", overwrite=True)
    assert StoredIndex(clustered).factory == "SQ8"
    rooms = iter([10**12, 1000])  # enough for the parts, but not to merge them
    monkeypatch.setattr(indexing.shutil, "disk_usage", lambda _: usage._replace(free=next(rooms)))
    with pytest.raises(OSError, match=r"is too small"):
        build(clustered, "IVF8,Flat", overwrite=True)
    assert StoredIndex(clustered).factory == "SQ8"
    assert len(list((clustered.folder / UNFINISHED).glob("until-*"))) == 4


@pytest.mark.parametrize(
    ("factory", "parameters", "message"),
    [
        ("Nonsense", None, "faiss rejects the index .*factory='Nonsense', dim=16"),
        ("PQ7", None, "faiss rejects the index .*multiple of the number of subquantizers"),
        *((name, None, "without IDMap") for name in ("IVF8,PQ4x4fs", "IVF8,PQ4,RFlat")),
        ("IDMap,Flat", None, "without IDMap"),
        *((name, None, "an index that grows") for name in ("NSG16", "PCA8,NSG16")),
        ("IVF700,SQ8", None, "at most as many cells as there are images"),
        ("IVF8,SQ8", "nprobe=0", "`nprobe` must be from 1 to .* nprobe=0, cells=8"),
        ("IVF8,SQ8", "nprobe=9", "`nprobe` must be from 1 to .* nprobe=9, cells=8"),
        ("IVF8,SQ8", "probes=4", "faiss rejects the index .*parameters='probes=4'"),
    ],
)
def test_rejects_what_cannot_be_built_before_it_reads_a_row(
    clustered, factory, parameters, message
):
    with pytest.raises(ValueError, match=message):
        build(clustered, factory, parameters=parameters)
    assert {path.name for path in clustered.folder.glob("*index*")} == set()


def test_rejects_an_index_of_other_embeddings_and_waits_for_all_shards(clustered):
    with pytest.raises(FileNotFoundError, match=r"tfdml\.scale index"):
        StoredIndex(clustered)
    build(clustered, "Flat")
    rewrite(clustered.folder / "manifest.json", model="another")
    with pytest.raises(ValueError, match=r"build it again. Received: model='another'"):
        StoredIndex(Collection(clustered.folder))
    (clustered.folder / "shards/00009.parquet").unlink()
    with pytest.raises(ValueError, match=r"missing=1, first='00009\.parquet'"):
        build(clustered, "SQ8")


def test_rejects_a_collection_without_a_readable_image(tmp_path):
    options = {"unreadable": (0, 1, 2)}
    empty = write_collection(tmp_path / "c", np.zeros((3, 4)), ["a"] * 3, **options)
    with pytest.raises(ValueError, match=r"must have images that could be read. .*readable=0"):
        build(empty, "Flat")
