"""Collections that change: what they hold and find equals what one embedded from nothing does."""

import contextlib
import functools
import hashlib
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tfdml import files
from tfdml.files import locked, replacing
from tfdml.scale import Collection, StoredIndex, changing
from tfdml.scale.indexing import build
from tfdml.scale.listed_images import list_images
from tfdml.scale.writing import CollectionWriter, embed_missing, embedded

SIZE = 4  # images of a shard
ROWS = pa.schema({"path": pa.string(), "label": pa.string(), "price": pa.int64()})


class ByContent:
    """A model whose embedding is drawn by the content of a file; no embedding of empty ones."""

    fingerprint, dim, batch_size = "m" * 64, 3, 3

    def read(self, contents):
        is_read = [isinstance(each, bytes) and len(each) > 0 for each in contents]
        pairs = zip(contents, is_read, strict=True)
        return contents, [None if read else each or "it is empty" for each, read in pairs]

    def embed(self, contents, problems):
        return np.stack([embedding_of(content) for content in contents]), problems


def embedding_of(content):
    digest = hashlib.sha256(repr(content).encode()).digest()
    return np.frombuffer(digest[:12], np.uint32).astype(np.float32) / 2**32


class Photos:
    """Files in a folder, a list of some of them, and the collection that they should be."""

    def __init__(self, folder):
        self.folder, self.listed = folder, {}
        (folder / "photos").mkdir(parents=True)
        self.list, self.collection = folder / "list.parquet", folder / "collection"

    def put(self, name, content, label=None, price=None):
        path = self.folder / "photos" / name
        path.write_bytes(content)
        self.listed[str(path)] = (label, price, content)
        return str(path)

    def write_list(self):
        rows = [(path, *about[:2]) for path, about in self.listed.items()]
        pq.write_table(pa.table([*zip(*rows, strict=True)], ROWS), self.list)
        return str(self.list)

    def embed(self):
        """The collection, from nothing."""
        listing, writer = list_images(self.write_list()), CollectionWriter(self.collection)
        writer.begin({"model": "m" * 64, "dim": 3, "shard_size": SIZE}, listing)
        embed_missing(writer, listing, 3, lambda pieces: embedded(ByContent(), pieces))
        writer.finish()
        return Collection(self.collection)

    def add(self):
        return changing.add(self.collection, ByContent(), self.write_list())

    def update(self):
        return changing.update(self.collection, ByContent(), self.write_list())

    def remove(self, where):
        return changing.remove(self.collection, where)

    def check(self):
        """Checks that the collection is that of the listed images."""
        assert held(self.collection) == with_embeddings(self.listed)


def held(folder):
    """{path: (label, price, embedding)} of the images of a collection that have an embedding."""
    rows = Collection(folder).dataset().to_table().to_pylist()
    rows = [row for row in rows if row["error"] is None]
    assert len({row["path"] for row in rows}) == len(rows)
    return {row["path"]: (row["label"], row.get("price"), tuple(row["embedding"])) for row in rows}


def with_embeddings(images):
    """As `held`, of {path: (label, price, content)}."""
    return {
        path: (label, price, tuple(embedding_of(content).tolist()))
        for path, (label, price, content) in images.items()
        if content
    }


def assert_finds_what_is_near(folder, where="", keep=lambda label, price: True):
    """The index, of whatever age, finds what the embeddings say."""
    collection, expected = Collection(folder), held(folder)
    index = StoredIndex(collection)
    query = np.array([[0.3, 0.6, 0.9]], np.float32)
    ids, distances = index.search(query, 5, where)
    paths = collection.columns("path")["path"].to_pylist()
    pairs = zip(ids[0].tolist(), distances[0].tolist(), strict=True)
    found = {paths[key]: distance for key, distance in pairs if key >= 0}
    near = {
        path: np.linalg.norm(query[0] - vector)
        for path, (label, price, vector) in expected.items()
        if keep(label, price)
    }
    nearest = sorted(near, key=near.get)[:5]
    assert sorted(found, key=found.get) == nearest
    np.testing.assert_allclose(sorted(found.values()), [near[path] for path in nearest], 1e-5)


@pytest.fixture
def photos(tmp_path):
    made = Photos(tmp_path)
    for number in range(10):
        made.put(f"{number}.png", bytes([number]), "even" if number % 2 == 0 else None, number)
    made.embed()
    return made


def test_adds_what_is_not_there_and_names_copies(photos):
    build(Collection(photos.collection), "Flat")
    copy = photos.put("copy.png", bytes([3]), "odd", 7)
    photos.put("new.png", b"new", "even", 30)
    photos.put("empty.png", b"")
    done = photos.add()
    assert done == (3, 0, 0, 1, [(copy, str(photos.folder / "photos/3.png"))])
    photos.check()
    assert_finds_what_is_near(photos.collection)
    again = photos.add()
    assert again == (0, 0, 0, 0, [])
    assert Collection(photos.collection).version == 1
    assert Collection(photos.collection).images == 13


def test_updates_to_a_list(photos):
    build(Collection(photos.collection), "IVF2,Flat", parameters="nprobe=2")
    changed, gone, relabelled = list(photos.listed)[1:4]
    before = Collection(photos.collection).dataset().to_table().to_pylist()
    photos.put("1.png", b"other", None, 1)
    del photos.listed[gone]
    photos.listed[relabelled] = ("new label", 3, bytes([3]))
    photos.put("more.png", b"more", "even", 5)
    done = photos.update()
    assert done == (1, 1, 1, 0, [])
    photos.check()
    assert_finds_what_is_near(photos.collection)
    after = Collection(photos.collection).dataset().to_table().to_pylist()
    assert [row["path"] for row in after[:10]] == [row["path"] for row in before]
    assert [row["id"] for row in after] == list(range(11))
    assert after[2]["error"] == "removed"
    assert photos.update()[:4] == (0, 0, 0, 0)
    assert build(Collection(photos.collection), "IVF2,Flat", parameters="nprobe=2")
    assert_finds_what_is_near(photos.collection)
    assert changed in held(photos.collection)


def test_stamps_decide_which_files_have_changed(photos, monkeypatch):
    def update(**stamps):
        paths = [str(photos.folder / "photos" / f"{name}.png") for name in stamps]
        pq.write_table(pa.table({"path": paths, "file_stamp": [*stamps.values()]}), photos.list)
        return changing.update(photos.collection, ByContent(), str(photos.list))[:4]

    def ids():
        rows = Collection(photos.collection).present().to_pylist()
        return {pathlib.Path(row["path"]).stem: row["id"] for row in rows}

    monkeypatch.setattr("tfdml.scale.writing._SURELY", 1)  # files with stamps were there
    photos.put("empty.png", b"")
    names = {"0": "a", "1": None, "2": None}
    assert update(**names)[2] == 7
    assert update(**names, empty="c", gone="d") == (2, 0, 0, 2)
    photos.put("0.png", b"other")
    assert update(**names, empty="c", gone="d") == (0, 1, 0, 1)  # which is still not there
    assert ids() == {"0": 0, "1": 1, "2": 2, "empty": 10, "gone": 11}
    photos.put("gone.png", b"there")
    assert update(**{**names, "0": "new"}, empty="c", gone="d") == (1, 1, 1, 0)
    assert ids() == {"0": 12, "1": 1, "2": 2, "empty": 10, "gone": 11}
    there = held(photos.collection)
    assert there[str(photos.folder / "photos/0.png")][2] == tuple(embedding_of(b"other"))
    assert there[str(photos.folder / "photos/gone.png")][2] == tuple(embedding_of(b"there"))


def test_removes_by_a_condition(photos):
    build(Collection(photos.collection), "SQ8")
    assert photos.remove("price >= 4 and label = 'even'") == 3
    photos.listed = {path: a for path, a in photos.listed.items() if a[0] is None or a[1] < 4}
    photos.check()
    index = StoredIndex(Collection(photos.collection))
    assert len(index) == 7
    assert not np.isin(index.search(np.zeros((1, 3), np.float32), 9)[0], [4, 6, 8]).any()
    assert photos.remove("price > 100") == 0


@pytest.mark.parametrize(
    ("factory", "few"), [("Flat", 2**16), ("Flat", 0), ("IVF2,Flat", 0), ("HNSW8", 0)]
)
def test_a_condition_is_met_by_all_that_is_found(photos, factory, few, monkeypatch):
    monkeypatch.setattr("tfdml.scale.stored_index._FEW", few)
    parameters = "nprobe=2" if "IVF" in factory else None
    build(Collection(photos.collection), factory, parameters=parameters)
    where = "label = 'even' and price between 1 and 7"

    def keep(label, price):
        return label == "even" and 1 <= price <= 7

    assert_finds_what_is_near(photos.collection, where, keep)
    photos.put("a.png", b"a", "even", 5)
    photos.put("b.png", b"b", "even", 50)
    photos.add()
    photos.remove("price = 2")
    assert_finds_what_is_near(photos.collection, where, keep)
    assert_finds_what_is_near(photos.collection)


@pytest.mark.parametrize(
    "where",
    ["price <", "price", "nothing = 1", "1; drop table x", "exists(from read_text('/etc/passwd'))"],
)
def test_rejects_what_is_no_condition(photos, where):
    with pytest.raises(ValueError, match=r"`where` must be (a condition|true)") as error:
        photos.remove(where)
    assert where.split()[0] in str(error.value)
    photos.check()


def test_a_condition_has_a_limit_of_time(photos, monkeypatch):
    monkeypatch.setattr("tfdml.scale.collection._FILTERING_SECONDS", 0.2)
    slow = "id < (select count(*) from range(1000000) a, range(1000000) b where a.range < b.range)"
    with pytest.raises(ValueError, match=r"condition in SQL on .*\(INTERRUPT"):
        Collection(photos.collection).matching(slow)


def test_rejects_another_model_another_type_and_a_second_writer(photos):
    other = ByContent()
    other.fingerprint = "n" * 64
    with pytest.raises(ValueError, match="made by this version of this model"):
        changing.add(photos.collection, other, str(photos.list))
    pq.write_table(
        pa.table({"path": ["x.png"], "price": ["cheap"]}), photos.folder / "wrong.parquet"
    )
    with pytest.raises(ValueError, match=r"columns of .* must be of the types in"):
        changing.add(photos.collection, ByContent(), str(photos.folder / "wrong.parquet"))
    with (
        locked(photos.collection, "taken"),
        pytest.raises(BlockingIOError, match="another process is writing to"),
    ):
        photos.remove("price = 1")
    assert Collection(photos.collection).version == 0


def test_a_wrong_list_or_a_disk_that_is_gone_takes_nothing(photos, monkeypatch):
    other = photos.folder / "other.parquet"
    pq.write_table(pa.table({"path": [str(photos.folder / "x.png")]}), other)
    with pytest.raises(ValueError, match=r"must have some image of .*: is it the right list\?"):
        changing.update(photos.collection, ByContent(), str(other))
    before = held(photos.collection)
    for path in photos.listed:
        pathlib.Path(path).unlink()
    assert photos.update() == (0, 0, 0, 0, [])
    assert held(photos.collection) == before
    monkeypatch.setattr("tfdml.scale.writing._SURELY", 4)
    pq.write_table(pa.table({"path": [f"{name}.png" for name in "abcdefgh"]}), other)
    with pytest.raises(ValueError, match=r"none of 4 images can be read.*is their disk mounted"):
        changing.add(photos.collection, ByContent(), str(other))
    assert held(photos.collection) == before


def test_columns_that_a_list_lacks_stay(photos):
    before = held(photos.collection)
    pathlib.Path(photos.put("1.png", b"other")).touch()
    del photos.listed[str(photos.folder / "photos/1.png")]
    pattern = str(photos.folder / "photos/*.png")
    done = changing.update(photos.collection, ByContent(), pattern)
    assert done[:3] == (0, 1, 0)
    after = held(photos.collection)
    assert {path: row[:2] for path, row in after.items()} == {
        path: row[:2] for path, row in before.items()
    }


def test_a_changed_collection_is_embedded_anew_by_another_model(photos, tmp_path):
    photos.remove("price < 3")
    listing = list_images(str(photos.collection))
    assert listing.table().column_names == ["path", "label", "price"]
    assert listing.table()["price"].to_pylist() == list(range(3, 10))
    writer = CollectionWriter(photos.collection)
    with pytest.raises(ValueError, match=r"was changed since; use `python -m tfdml\.scale update`"):
        writer.check({"dim": 3})


def test_an_open_collection_stays_as_it_was_for_one_change(photos):
    opened = Collection(photos.collection)
    before = held(photos.collection)
    photos.remove("price < 6")
    rows = [row for part in opened.chunks() for row in part.embeddings.tolist()]
    assert rows == [list(row[2]) for row in before.values()]


class Killed(BaseException):
    pass


@contextlib.contextmanager
def killed_after(writes):
    """Kills at the write of a file by `changing`, before or after it, once some were written."""
    left = writes

    @contextlib.contextmanager
    def replacing_until_killed(path):
        nonlocal left
        with replacing(path) as unfinished:
            yield unfinished
            left -= 1
            if left == 0:
                raise Killed
        if left == -1:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changing, "replacing", replacing_until_killed)
        patch.setattr(files, "replacing", replacing_until_killed)
        yield


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 15), pytest.param(7, 1000, marks=pytest.mark.slow)]
)
def test_random_changes_with_kills_lead_to_what_is_embedded_from_nothing(seed, count, tmp_path):
    rng, photos = np.random.default_rng(seed), Photos(tmp_path)
    for number in range(9):
        photos.put(f"{number}.png", bytes([number]), "a", number)
    build(photos.embed(), "Flat")
    there, kills = dict(photos.listed), 0
    for _ in range(count):
        kind, price = rng.choice(["add", "update", "remove"]), int(rng.integers(12))
        before = dict(there)
        if kind == "remove":
            there = {path: about for path, about in there.items() if about[1] != price}
            change = functools.partial(photos.remove, f"price = {price}")
        else:
            photos.listed = {}
            names = rng.permutation(30)[: rng.integers(1, 15)].tolist()
            if kind == "update" and there:  # a list without any of its images is rejected
                names = [int(pathlib.Path(next(iter(there))).stem), *names]
            for name in dict.fromkeys(names):
                file = tmp_path / "photos" / f"{name}.png"
                about = rng.choice(["a", "b"]).item(), int(rng.integers(12))
                if not file.exists() or (kind == "update" and rng.random() < 0.3):
                    file.write_bytes(rng.bytes(int(rng.integers(3))))
                photos.listed[str(file)] = (*about, file.read_bytes())
            there = photos.listed | ({} if kind == "update" else there)
            change = getattr(photos, kind)
        if rng.random() < 0.5:
            with killed_after(int(rng.integers(1, 4))):
                try:
                    change()
                except Killed:
                    kills += 1
            seen, whole = held(photos.collection), [with_embeddings(x) for x in (before, there)]
            if kind == "remove":
                assert seen in whole
            for path in seen.keys() | whole[0].keys() | whole[1].keys():
                assert seen.get(path) in [each.get(path) for each in whole], (kind, path)
        change()
        assert held(photos.collection) == with_embeddings(there)
        if there:
            assert_finds_what_is_near(photos.collection)
        if rng.random() < 0.1 and held(photos.collection):
            build(Collection(photos.collection), "Flat")
    assert kills > count / 10
