"""Search in a collection that was embedded and indexed."""

import pytest

from tfdml.scale.indexing import build
from tfdml.search import __main__ as command
from tfdml.search import search_model
from tfdml.search.collection_search import CollectionSearch
from tfdml.search.picture_files import RejectedError


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
        assert ask("/api/images/3/thumbnail")[0] == 200
        assert ask("/api/images/5/thumbnail")[0] == 404
        assert ask("/api/images/6")[0] == ask("/api/similar/5")[0] == 404
        assert len(ask("/api/sample?k=5")[1]["images"]) == 5
        about = ask("/api/status")[1]
        assert (about["images"], about["exact"], about["ranked_by"]) == (5, True, "distance")
        assert ask("/api/refresh", b"")[0] == 409


def test_a_file_is_served_as_what_it_is_now(search, serving, folder, encoded):
    path = folder / "red/dark.png"
    path.write_text("a secret")
    with serving(search) as ask:
        status, content, _ = ask("/api/images/1")
        assert status == 415
        assert "secret" not in str(content)
        assert ask("/api/images/1/thumbnail")[0] == 415
        assert search.images.entry(1).width == 0
        path.write_bytes(encoded((120, 5, 10), "JPEG"))
        assert search.images.entry(1)[1:3] == (40, 30)  # the failure was not kept
        assert ask("/api/images/1")[2]["Content-Type"] == "image/jpeg"


def test_an_image_without_a_label_shows_its_folder(search):
    assert search.images.entry(4).folder == "memory:/"
    assert (search.images.entry(0).folder, search.images.entry(0).width) == ("red", 40)
    assert (search.images.entry(5).width, search.images.entry(5).label) == (0, "gone")
    with pytest.raises(RejectedError, match="There is no image"):
        search.images.entry(-1)


def test_the_command_opens_a_collection(collection, model, encoded, monkeypatch, capsys):
    model.radius = 250.0
    monkeypatch.setattr(search_model, "SearchModel", lambda version: model)
    search = command.open_collection(command.Search("model", str(collection.folder)), None)
    assert f"5 images of {collection.folder}, ranked by cosine" in capsys.readouterr().out
    nearest = search.by_picture(encoded((10, 250, 10)), 3).found[0]
    assert (nearest.id, nearest.entry.label, nearest.scores["cosine"]) == (2, "green", 1)


def test_opens_what_is_at_an_address(search, encoded):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://blue.png", "wb") as file:
        file.write(encoded((10, 10, 250)))
    assert search.images.read(4) == encoded((10, 10, 250))


def test_finds_the_same_without_an_index(collection, model, encoded):
    asked = [encoded(colour) for colour in ((120, 5, 10), (9, 9, 99))]
    conditions = ("", "label = 'green'", "label = 'none'")

    def answers():
        search = CollectionSearch(model, collection.folder)
        assert (search.exact, len(search)) == (True, 5)
        pairs = [search.by_picture(picture, 3, where) for picture in asked for where in conditions]
        with pytest.raises(RejectedError, match="has no embedding"):
            search.by_id(5, 3)
        return [pair.found for pair in [*pairs, search.by_id(1, 9)]]

    exact = answers()
    build(collection, "Flat")
    assert exact == answers()
    assert [len(found) for found in exact] == [3, 2, 0, 3, 2, 0, 4]


def test_rejects_a_collection_that_fits_no_memory_or_is_of_another_model(
    collection, model, monkeypatch
):
    monkeypatch.setattr("tfdml.checks.total_memory", lambda: 10)
    with pytest.raises(ValueError, match=r"has no index \(`python -m tfdml\.scale index`\), and"):
        CollectionSearch(model, collection.folder)
    model.fingerprint = "another"
    with pytest.raises(ValueError, match="made by this version of this model"):
        CollectionSearch(model, collection.folder)


def test_adds_and_removes_images_while_others_search(collection, model, serving, encoded, tmp_path):
    build(collection, "Flat")
    uploads = tmp_path / "uploads"
    with serving(CollectionSearch(model, collection.folder, uploads)) as ask:
        assert ask("/api/status")[1]["uploads"]
        status, image, _ = ask("/api/images", encoded((9, 9, 99)))
        assert (status, image["id"], image["width"]) == (201, 6, 40)
        assert [path.read_bytes() for path in uploads.iterdir()] == [encoded((9, 9, 99))]
        assert ask("/api/images", encoded((9, 9, 99)))[1]["id"] == 6
        assert ask("/api/search?k=1", encoded((9, 9, 98)))[1]["results"][0]["id"] == 6
        assert ask("/api/images/6")[1] == encoded((9, 9, 99))
        assert ask("/api/images/0", method="DELETE")[1]["images"] == 5
        assert ask("/api/images/0", method="DELETE")[0] == 404
        assert ask("/api/images/0")[0] == ask("/api/similar/0")[0] == 404
        found = ask("/api/search?k=9", encoded((250, 10, 10)))[1]["results"]
        assert {result["id"] for result in found} == {1, 2, 3, 4, 6}
        assert {image["id"] for image in ask("/api/sample?k=9")[1]["images"]} == {1, 2, 3, 4, 5, 6}
        assert ask("/api/images", b"text")[0] == 415
        headers = {"Sec-Fetch-Site": "cross-site"}
        assert ask("/api/images/1", method="DELETE", headers=headers)[0] == 403


def test_changes_nothing_without_a_folder_for_uploads(search, serving, encoded):
    with serving(search) as ask:
        status, answer, _ = ask("/api/images", encoded((1, 1, 1)))
        assert (status, "--uploads FOLDER" in answer["error"]) == (409, True)
        assert ask("/api/images/0", method="DELETE")[0] == 409
        assert ask("/api/status")[1]["images"] == 5


@pytest.mark.parametrize("option", [{"index": "a"}, {"rerank": 5}])
def test_rejects_options_of_folders(option):
    settings = command.Search("model", "collection", **option)
    with pytest.raises(ValueError, match="`index` and `rerank` are for a folder of images"):
        command.open_collection(settings, None)
