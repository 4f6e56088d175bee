"""Damaged files of a collection and of its index: a named error or the same answer, never death."""

import hashlib
import json
import random

import numpy as np
import pytest
from stored_collections import finished, rewrite

from tfdml.scale import Collection, StoredIndex
from tfdml.scale import checksums as module
from tfdml.scale.checksums import CheckedFile, checksums, opened, sealed
from tfdml.scale.indexing import build


def test_only_the_blocks_that_are_used_are_checked_and_only_once(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 4)
    path = tmp_path / "file"
    path.write_bytes(b"abcdefghij")
    with path.open("rb") as file:
        known = checksums(file)
    assert (known["bytes"], len(known["crc32"])) == (10, 3)
    path.write_bytes(b"abcdeXghij")
    damaged = CheckedFile(path, known, "write it again")
    damaged.check(0, 4)
    damaged.check(8, 10)
    with pytest.raises(ValueError, match=r"file is damaged \(its bytes from 4 on .*: write it"):
        damaged.check(3, 5)
    path.write_bytes(b"XXXXefghij")
    damaged.check(0, 10)  # the first block was checked before
    path.write_bytes(b"abcdefghi")
    with pytest.raises(ValueError, match=r"damaged \(it has 9 bytes, not 10\)"):
        CheckedFile(path, known, "write it again").check(0, 4)
    CheckedFile(path, None, "").check()


def test_a_sealed_text_is_damaged_by_other_values_and_not_by_space():
    text = sealed({"dim": 16, "files": {"a": {"bytes": 1, "crc32": [2]}}})
    assert opened(text.replace("\n", " "), "x.json", "")["dim"] == 16
    assert opened('{"dim": 16}', "x.json", "") == {"dim": 16}  # of an earlier version
    for wrong in (text.replace("16", "17"), text[:-3], "[1]", "[" * 100_000):
        with pytest.raises(ValueError, match=r"x\.json is damaged.*: remove it"):
            opened(wrong, "x.json", "remove it")


def answers(folder):
    """What a collection and its index say, as a digest, and the error if one says so."""
    collection = Collection(folder)
    digest = hashlib.sha256()
    for rows in collection.chunks():
        digest.update(rows.ids.tobytes() + rows.embeddings.tobytes())
    index = StoredIndex(collection)
    ids, distances = index.search(collection.rows([1, 200, 400]), 5)
    digest.update(ids.tobytes() + distances.round(4).tobytes())
    texts = collection.columns("path", "label").to_pydict()
    digest.update(repr((texts, index.parameters, index.factory, len(index))).encode())
    return digest.hexdigest()


@pytest.mark.parametrize(
    ("factory", "places"),
    [
        ("PCA8,IVF4,Flat", 3),
        *(
            pytest.param(factory, 400, marks=pytest.mark.slow)
            for factory in ("IVF8,SQ8", "PCA8,IVF4,Flat", "HNSW8", "Flat")
        ),
    ],
)
def test_damage_is_named_and_kills_nothing(clustered, factory, places):
    folder, rng = finished(clustered).folder, random.Random(0)
    build(Collection(folder), factory)
    expected = answers(folder)
    paths = sorted(path for path in folder.rglob("[!.]*") if path.is_file())
    assert len(paths) > 12
    for path in paths:
        content = path.read_bytes()
        for _ in range(places):
            place = rng.randrange(len(content))
            # A bit changed, 40 bytes zeroed, or the rest cut off.
            changed = rng.choice([bytes([content[place] ^ 1 << rng.randrange(8)]), bytes(40), b""])
            rest = content[place + len(changed) :] if changed else b""
            path.unlink()  # a file that is mapped may not be cut off
            path.write_bytes(content[:place] + changed + rest)
            try:
                right = answers(folder) == expected
            except (ValueError, OSError) as error:
                right = path.name in str(error) or str(folder) in str(error)
            assert right, (path, place)
        path.write_bytes(content)
    assert answers(folder) == expected


@pytest.mark.parametrize("name", ["index.faiss", "index.ivfdata"])
def test_a_file_that_an_index_of_an_earlier_version_lacks_is_named(name, clustered):
    build(clustered, "IVF8,Flat")
    about = clustered.folder / "index" / "index.json"
    files = json.loads(about.read_text())["files"]
    rewrite(about, files={})
    assert len(StoredIndex(clustered)) == 597
    file = about.with_name(name)
    assert name in files
    file.unlink()
    with pytest.raises((FileNotFoundError, ValueError), match=name):
        StoredIndex(clustered)


def test_cells_are_checked_when_they_are_visited(clustered, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 256)
    collection = finished(clustered)
    build(collection, "IVF8,Flat", parameters="nprobe=1")
    rows, index = collection.rows(np.arange(5, 60)), StoredIndex(collection)
    path = index.folder / "index.ivfdata"
    found = index.search(rows, 3)[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()  # as faiss still reads ahead in the file that it has mapped
    path.write_bytes(content)
    index = StoredIndex(collection)
    damaged = 0
    for row, ids in zip(rows, found.tolist(), strict=True):
        try:
            right = index.search(row[None], 3)[0].tolist() == [ids]
        except ValueError as error:
            right = "index.ivfdata is damaged" in str(error)
            damaged += 1
        assert right
    assert 0 < damaged < len(rows)
