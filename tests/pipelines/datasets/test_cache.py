import json
import shutil

import numpy as np
import pytest
from PIL import Image

import pipelines
from pipelines.datasets.cache import sources_of
from pipelines.shards import write_cache


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    made = tmp_path_factory.mktemp("made")
    for index in range(8):
        path = made / "photos" / "abcd"[index // 2] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (index, 0, 0)).save(path)
    write_cache(pipelines.load("folder", made / "photos"), made / "cache", size=9)
    return made / "cache"


@pytest.fixture
def folder(written, tmp_path):
    return shutil.copytree(written, tmp_path / "cache")


def test_loads_what_the_cache_was_made_of(folder):
    dataset = pipelines.load("cache", data_dir=str(folder))
    assert dataset.name == "folder"
    assert [split.names for split in dataset.splits.values()] == [["a", "b"], ["c", "d"]]
    assert dataset.train.labels.tolist() == [0, 0, 1, 1]
    assert dataset.train.super_labels is None
    assert dataset.preprocessing.warp_size == 9
    assert all(split.holds_records for split in dataset.splits.values())
    both = dataset.both()
    assert both.holds_records
    batches = pipelines.evaluation_batches(both, (9, 9, 3), batch_size=3)
    assert len(batches) == 3
    reds = np.concatenate(list(batches))[:, 4, 4, 0]
    np.testing.assert_allclose(reds, np.arange(8), atol=2)  # of JPEG


def test_states_the_files_that_it_was_made_of(tmp_path, monkeypatch):
    for place in "xy":
        for name in ("a/1", "a/2", "b/1", "b/2"):
            path = tmp_path / place / "photos" / f"{name}.bmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (9, 9), ord(place)).save(path)
    (tmp_path / "x" / "link").symlink_to("photos")
    monkeypatch.chdir(tmp_path / "x")
    for spelling in ("link", "photos", tmp_path / "x" / "photos"):
        write_cache(pipelines.load("folder", spelling), tmp_path / "cache", size=9)
    images = pipelines.load("cache", tmp_path / "cache").both().images[::-1]
    names = ["b/2", "b/1", "a/2", "a/1"]
    expected = [str(tmp_path / "x" / "photos" / f"{name}.bmp") for name in names]
    assert sources_of(images) == expected
    monkeypatch.chdir(tmp_path / "y")  # files of the same relative paths and sizes
    with pytest.raises(ValueError, match="holds a cache of other images"):
        write_cache(pipelines.load("folder", "photos"), tmp_path / "cache", size=9)


@pytest.mark.parametrize(
    ("break_it", "error", "message"),
    [
        (lambda f: (f / "manifest.json").unlink(), FileNotFoundError, "no finished cache in .*cac"),
        (lambda f: (f / "manifest.json").write_text("{"), ValueError, "manifest.json cannot be re"),
        (lambda f: (f / "manifest.json").write_text("[]"), ValueError, "write the cache again"),
        (
            lambda f: (f / "manifest.json").write_text(json.dumps({"format": 9})),
            ValueError,
            "must have format 1: write the cache again. Received: format=9",
        ),
        (lambda f: (f / "index.npz").unlink(), FileNotFoundError, "index.npz is missing: run"),
        (lambda f: (f / "index.npz").write_bytes(b"x"), ValueError, "has changed since it was wr"),
    ],
)
def test_rejects_a_cache_that_is_not_whole(break_it, error, message, folder):
    break_it(folder)
    with pytest.raises(error, match=message):
        pipelines.load("cache", data_dir=folder)


def test_needs_a_folder():
    with pytest.raises(ValueError, match="dataset 'cache' needs `data_dir`, a folder that `python"):
        pipelines.load("cache")


def test_boxes_are_for_the_images_that_it_is_made_of(folder, tmp_path):
    (tmp_path / "boxes.csv").write_text("path,x1,y1,x2,y2\na.png,0,0,1,1\n")
    with pytest.raises(ValueError, match="`boxes` cannot be applied to a cache"):
        pipelines.load("cache", data_dir=folder, boxes=str(tmp_path / "boxes.csv"))
    with pytest.raises(ValueError, match="dataset 'cache' has no boxes"):
        pipelines.load("cache", data_dir=folder, boxes="annotated")
