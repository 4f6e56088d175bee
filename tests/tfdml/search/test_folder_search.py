import errno
import pathlib
import threading
import time

import numpy as np
import pytest
from stored_collections import write_collection

from tfdml.scale import changing
from tfdml.scale.layout import MANIFEST
from tfdml.search import collection_search, folder_search
from tfdml.search.folder_search import FolderSearch
from tfdml.search.picture_files import RejectedError, image_files


def names(answer):
    return [found.entry.name for found in answer.found]


def key_of(search, name):
    return next(key for key, entry in search.sample(99, 0).items() if entry.name == name)


def test_a_picture_of_more_pixels_than_a_stranger_may_send_is_not_decoded(
    search, model, encoded, monkeypatch
):
    picture, before = encoded("red", size=(40, 30)), model.embedded
    monkeypatch.setattr(collection_search, "MOST_PIXELS", 40 * 30 - 1)
    with pytest.raises(RejectedError, match=r"at most 1,199 pixels\. Received: 40 x 30") as error:
        search.by_picture(picture, 1)
    assert error.value.status == 413
    assert model.embedded == before
    monkeypatch.setattr(collection_search, "MOST_PIXELS", 40 * 30)
    assert len(search.by_picture(picture, 1).found) == 1


def test_finds_the_nearest_images_of_an_image_without_itself(search, folder, encoded):
    answer = search.by_id(key_of(search, "red/bright.png"), 99)
    assert names(answer)[0] == "red/dark.png"
    assert len(answer.found) == 4
    assert "red/bright.png" not in names(answer)
    for copy in range(9):  # behind which it is not found at all
        (folder / f"copy {copy}.png").write_bytes(encoded((250, 10, 10)))
    search.refresh()
    answer = search.by_id(key_of(search, "red/bright.png"), 3)
    assert len(answer.found) == 3
    assert all(name.startswith("copy") for name in names(answer))
    with pytest.raises(RejectedError, match=r"no image with this id\. Received: id=99") as caught:
        search.by_id(99, 3)
    assert caught.value.status == 404


def test_states_the_cosine_where_all_embeddings_are_of_one_length(model, search):
    model.radius = 62_700**0.5  # of the bright colours and blue
    answer = search.by_id(key_of(search, "blue.png"), 9)
    assert answer.ranked_by == "cosine"
    cosines = {found.entry.name: found.scores["cosine"] for found in answer.found}
    for name in ("red/bright.png", "green/bright.png"):
        assert cosines[name] == pytest.approx((250 * 10 + 10 * 250 + 10 * 10) / 62_700)


def test_a_learned_similarity_puts_the_nearest_in_order(model, folder, index, encoded):
    model.learned, asked = True, encoded((110, 5, 10))
    search = FolderSearch(model, folder, index, rerank=3)
    search.refresh()
    answer = search.by_picture(asked, 2)
    # The three nearest are dark red, bright red and dark green; the similarity is the brightness,
    # which is the same for the dark ones: the nearer of them comes first.
    assert names(answer) == ["red/bright.png", "red/dark.png"]
    assert answer.ranked_by == "similarity"
    assert [found.scores["similarity"] for found in answer.found] == [270.0, 135.0]
    assert answer.found[1].scores["distance"] == pytest.approx(10)
    assert names(search.by_picture(asked, 1)) == ["red/bright.png"]
    assert "reranking" in answer.seconds
    by_distance = FolderSearch(model, folder, index, rerank=0)
    assert names(by_distance.by_picture(asked, 2))[0] == "red/dark.png"
    assert by_distance.ranked_by == "distance"
    assert FolderSearch(model, folder, index).rerank == 100
    assert len(search.by_picture(asked, 5).found) == 5  # more than it was to put in order


def test_embeds_only_what_is_new(model, search, folder, index, encoded, monkeypatch):
    assert model.embedded == 5
    again = FolderSearch(model, folder, index)
    saved = (index / MANIFEST).stat().st_mtime_ns
    assert again.refresh() == (0, 0)
    assert (model.embedded, (index / MANIFEST).stat().st_mtime_ns) == (5, saved)
    (folder / "blue.png").unlink()
    (folder / "red/dark.png").write_bytes(encoded((90, 0, 0), size=(50, 50)))
    (folder / "new.jpg").write_bytes(encoded((99, 99, 99), "JPEG"))
    changed, kept = key_of(again, "red/dark.png"), key_of(again, "red/bright.png")
    assert again.refresh() == (2, 2)
    assert (model.embedded, len(again)) == (7, 5)
    assert key_of(again, "red/dark.png") != changed
    assert key_of(again, "red/bright.png") == kept
    with pytest.raises(RejectedError):
        again.images.entry(changed)
    third = FolderSearch(model, folder, index)
    assert third.sample(99, 0).keys() == again.sample(99, 0).keys()
    assert third.refresh() == (0, 0)
    monkeypatch.setattr(collection_search, "_TRIED", 1)
    assert all(len(third.sample(1, seed)) == 1 for seed in range(20))  # none that is gone


def test_files_that_are_no_images_are_listed_and_not_tried_again(
    model, search, folder, index, encoded
):
    (folder / "text.png").write_bytes(b"no picture")
    (folder / "half.png").write_bytes(encoded((1, 2, 3))[:60])
    search.refresh()
    assert sorted(search.left_out) == ["half.png", "text.png"]
    tried = model.embedded
    assert FolderSearch(model, folder, index).refresh() == (0, 0)
    assert model.embedded == tried
    for name in search.left_out:
        (folder / name).unlink()
    search.refresh()
    assert search.left_out == {}


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(folder_search, "_SHARD_SIZE", 2)


@pytest.mark.usefixtures("small_shards")
def test_a_save_that_fails_adds_no_image_twice(model, folder, index, monkeypatch):
    calls, save = [], changing.write_text

    def failing_once(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        save(*arguments)

    monkeypatch.setattr(changing, "write_text", failing_once)
    with pytest.raises(KeyboardInterrupt):
        FolderSearch(model, folder, index).refresh()
    again = FolderSearch(model, folder, index)
    assert (len(again), model.embedded) == (2, 4)
    assert again.refresh() == (3, 0)
    assert (len(again), model.embedded) == (5, 7)


@pytest.mark.usefixtures("small_shards")
def test_a_refresh_in_the_background_ends_when_the_search_stops(model, folder, index):
    search, embed = FolderSearch(model, folder, index), model.embed
    reached = threading.Semaphore(0)

    def slow(*given):
        reached.release()
        time.sleep(0.05)
        return embed(*given)

    model.embed = slow
    search.start_refresh()
    assert reached.acquire(timeout=10)
    assert reached.acquire(timeout=10)
    search.stop()
    assert search.refreshing is None
    assert 0 < len(FolderSearch(model, folder, index)) < 5


def test_an_empty_or_wrong_folder_does_not_empty_the_index(model, search, folder, index, tmp_path):
    folder.rename(tmp_path / "elsewhere")
    folder.mkdir()
    with pytest.raises(ValueError, match=r"must have some image of .*colours: .*--index"):
        FolderSearch(model, folder, index).refresh()
    search.start_refresh()
    while search.refreshing:
        time.sleep(0.01)
    assert "disk not mounted" in search.failure
    assert len(search) == 5
    folder.rmdir()
    (tmp_path / "elsewhere").rename(folder)
    assert FolderSearch(model, folder, index).refresh() == (0, 0)


def test_a_file_that_cannot_be_read_is_left_out_and_tried_again(model, folder, index, monkeypatch):
    read = pathlib.Path.read_bytes

    def fails(path):
        if path.name == "blue.png":
            raise OSError(errno.EIO, "broken")
        return read(path)

    (folder / "loop.png").symlink_to(folder / "loop.png")
    search = FolderSearch(model, folder, index)
    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "read_bytes", fails)
        assert search.refresh() == (4, 0)
        assert search.left_out == {"blue.png": "it cannot be opened: broken"}
    assert search.refresh() == (1, 0)
    assert (len(search), search.left_out) == (5, {})
    assert search.refresh() == (0, 0)
    assert model.embedded == 6  # the file that could not be opened was not embedded then


def test_starts_with_an_empty_folder(model, tmp_path, index, encoded):
    (tmp_path / "empty").mkdir()
    search = FolderSearch(model, tmp_path / "empty", index)
    assert search.refresh() == (0, 0)
    assert search.by_picture(encoded((1, 2, 3)), 3).found == []
    assert search.by_picture(encoded((1, 2, 3)), 3, "label = 'x'").found == []
    assert (search.sample(3, 0), search.left_out) == ({}, {})
    (tmp_path / "empty" / "first.png").write_bytes(encoded((1, 2, 3)))
    assert search.refresh() == (1, 0)
    assert names(search.by_picture(encoded((1, 2, 3)), 3)) == ["first.png"]


def test_rejects_folders_and_indexes_that_cannot_be(model, folder, index, tmp_path):
    with pytest.raises(FileNotFoundError, match="`images` must be a folder"):
        FolderSearch(model, tmp_path / "missing", index)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ValueError, match="must be a new or empty folder"):
        FolderSearch(model, folder, tmp_path / "other")
    FolderSearch(model, folder, index).refresh()
    with pytest.raises(ValueError, match=r"must have been made of this folder: .*made_of='.*'"):
        FolderSearch(model, folder / "red", index)
    write_collection(tmp_path / "of none", np.ones((1, 3)), ["a"], model=model.fingerprint)
    with pytest.raises(ValueError, match=r"must have been made of this folder: .*made_of=None"):
        FolderSearch(model, folder, tmp_path / "of none")
    [shard] = (index / "shards").iterdir()
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"is damaged .*: embed the images into a new folder"):
        FolderSearch(model, folder, index)
    model.fingerprint = "another"
    with pytest.raises(ValueError, match=r"made by this model: give another --index"):
        FolderSearch(model, folder, index)
    (tmp_path / "link").symlink_to(folder)
    for path in (folder / "index.npz", tmp_path / "link" / "red" / "index.npz"):
        with pytest.raises(ValueError, match="`index` must lie outside"):
            FolderSearch(model, folder, path)
    with pytest.raises(ValueError, match="`rerank` needs"):
        FolderSearch(model, folder, index, rerank=10)


def test_a_folder_of_which_no_image_can_be_read_is_searched_without_them(
    model, folder, index, encoded, monkeypatch
):
    monkeypatch.setattr("tfdml.scale.writing._SURELY", 2)
    for path in image_files(folder):
        pathlib.Path(path).write_bytes(b"no picture")
    search = FolderSearch(model, folder, index)
    assert search.refresh() == (0, 0)
    assert len(search.left_out) == 5
    assert search.by_picture(encoded((1, 2, 3)), 3).found == []
    for path in image_files(folder):
        pathlib.Path(path).unlink()
    (folder / "good.png").write_bytes(encoded((1, 2, 3)))
    assert search.refresh() == (1, 5)
    assert (len(search), search.left_out) == (1, {})
