"""Search in a collection that was embedded and indexed."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tfdml.scale.collection import Collection
from tfdml.scale.indexing import build
from tfdml.search import __main__ as command
from tfdml.search.collection import CollectionSearch
from tfdml.search.images import RejectedError
from tfdml.search.model import SearchModel


def write(made, model, folder, colours, rows):
    """Writes the images of `folder` and one that could not be read; returns the `Collection`."""
    paths = [str(folder / name) for name in colours] + [str(folder / "gone.png")]
    labels = [name.partition("/")[0] if "/" in name else None for name in [*colours, "gone/x"]]
    (made / "shards").mkdir(parents=True)
    manifest = {"format": 1, "model": model.fingerprint, "dim": len(rows[0]), "images": 6}
    manifest |= {"list": "a", "shard_size": 6, "shards": 1}
    (made / "manifest.json").write_text(json.dumps(manifest))
    listed = {"path": pa.array(paths), "label": pa.array(labels, pa.string())}
    pq.write_table(pa.table(listed), made / "list.parquet")
    vectors = pa.array([*rows, None], pa.list_(pa.float32()))
    errors = pa.array([None] * 5 + ["it is gone"])
    shard = {"id": np.arange(6), **listed, "embedding": vectors, "error": errors}
    pq.write_table(pa.table(shard), made / "shards" / "00000.parquet")
    return Collection(made)


@pytest.fixture
def collection(tmp_path, folder, model, colours):
    return write(tmp_path / "collection", model, folder, colours, list(colours.values()))


@pytest.fixture
def search(collection, model):
    build(collection, "Flat")
    return CollectionSearch(model, collection.folder)


def test_finds_and_shows_images_by_a_picture_and_by_an_id(search, serving, encoded, folder):
    with serving(search) as ask:
        status, answer, _ = ask("/api/search?k=2", encoded((120, 5, 10)))
        assert status == 200
        names = [result["name"] for result in answer["results"]]
        assert names == [str(folder / "red/dark.png"), str(folder / "red/bright.png")]
        assert [result["folder"] for result in answer["results"]] == ["red", "red"]
        assert answer["results"][0]["distance"] == 0
        _, answer, _ = ask("/api/similar/0?k=5")
        assert answer["results"][0]["id"] == 1
        assert len(answer["results"]) == 4  # without itself and what has no embedding
        status, content, headers = ask("/api/images/1")
        assert (status, content) == (200, encoded((120, 5, 10)))
        assert headers["Content-Type"] == "image/png"
        assert ask("/api/images/4/thumbnail")[0] == 200
        assert ask("/api/images/5/thumbnail")[0] == 404
        assert ask("/api/images/6")[0] == ask("/api/similar/5")[0] == 404
        assert len(ask("/api/sample?k=5")[1]["images"]) == 5
        about = ask("/api/status")[1]
        assert (about["images"], about["exact"], about["ranked_by"]) == (5, True, "distance")
        assert ask("/api/refresh", b"")[0] == 409


def test_a_file_that_is_no_longer_an_image_is_not_served(search, serving, folder, encoded):
    path = folder / "red/dark.png"
    path.write_text("a secret")
    with serving(search) as ask:
        status, content, _ = ask("/api/images/1")
        assert status == 415
        assert "secret" not in str(content)
        assert search.entry(1).width == 0
        path.write_bytes(encoded((120, 5, 10)))
        assert search.entry(1).width > 0  # the failure was not kept


def test_a_replaced_file_is_served_as_what_it_is(search, serving, folder, encoded):
    assert search.entry(1).format == "PNG"
    (folder / "red/dark.png").write_bytes(encoded((1, 2, 3), "JPEG"))
    with serving(search) as ask:
        assert ask("/api/images/1")[2]["Content-Type"] == "image/jpeg"


def test_an_image_without_a_label_shows_its_folder(search, folder):
    assert search.entry(4).folder == str(folder)
    assert (search.entry(0).folder, search.entry(0).width) == ("red", 40)
    assert (search.entry(5).width, search.entry(5).label) == (0, "gone")


def test_the_command_opens_a_collection(versions, tmp_path, folder, colours, capsys):
    model = SearchModel(versions["plain"][1])
    contents = [(folder / name).read_bytes() for name in colours]
    rows = [row.tolist() for row in model.embed(contents)]
    made = write(tmp_path / "collection", model, folder, colours, rows)
    build(made, "Flat")
    settings = command.Search(str(versions["plain"][1]), str(made.folder))
    search = command.open_collection(settings, versions["plain"][1])
    assert f"5 images of {made.folder}, ranked by cosine" in capsys.readouterr().out
    nearest = search.by_picture(contents[2], 3).found[0]
    assert (nearest.id, nearest.entry.label) == (2, "green")
    assert nearest.cosine == pytest.approx(1, abs=1e-5)


def test_opens_what_is_at_an_address(collection, model, encoded):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://blue.png", "wb") as file:
        file.write(encoded((10, 10, 250)))
    listed = pq.read_table(collection.folder / "list.parquet").to_pydict()
    listed["path"][4] = "memory://blue.png"
    pq.write_table(pa.table(listed), collection.folder / "list.parquet")
    build(collection, "Flat")
    search = CollectionSearch(model, collection.folder)
    assert search.content(4) == encoded((10, 10, 250))


def test_rejects_a_collection_of_another_model_or_without_an_index(collection, model):
    with pytest.raises(FileNotFoundError, match=r"tfdml\.scale index"):
        CollectionSearch(model, collection.folder)
    model.fingerprint = "another"
    with pytest.raises(ValueError, match="made by this version of this model"):
        CollectionSearch(model, collection.folder)


def test_rejects_options_of_folders(search, collection):
    for name, value in (("index", "a.npz"), ("rerank", 5), ("approximate", True)):
        settings = command.Search("model", str(collection.folder), **{name: value})
        with pytest.raises(ValueError, match=f"`{name}` is for a folder of images"):
            command.open_collection(settings, None)
    with pytest.raises(RejectedError, match="There is no image"):
        search.entry(-1)
