"""What cannot be read is found, with its reason, and what can be is remembered."""

import os
import threading

import pytest
from archives import write_image
from image_contents import claiming
from PIL import Image

import pipelines
from pipelines import check
from pipelines import unreadable as unreadable_files
from pipelines.loading import named
from pipelines.unreadable import unreadable
from tfdml.images import decoding, image_headers

NONE = "no whole JPEG, PNG, GIF, BMP, WebP"


@pytest.fixture
def photos(tmp_path):
    for image in ("a/0", "a/1", "a/2", "b/0", "b/1", "b/2"):
        write_image(tmp_path / f"{image}.jpg")
    return tmp_path


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        check.main([str(argument) for argument in arguments])
    return ended.value.code


def test_files_that_are_no_images_are_said_and_not_counted(photos, capsys):
    (photos / "a" / "notes.txt").write_text("three jpegs")
    with pytest.warns(UserWarning, match="ignored 1 files and folders that do not end in"):
        check.main(["--dataset", "folder", "--data_dir", str(photos)])
    assert capsys.readouterr().out == "All 6 images can be read\n"


def test_prints_what_is_broken_with_size_and_reason(photos, capsys):
    whole = (photos / "b" / "0.jpg").read_bytes()
    (photos / "a" / "0.jpg").write_bytes(b"")
    (photos / "b" / "0.jpg").write_bytes(whole[:-40])
    (photos / "b" / "1.jpg").write_bytes(b"P6 1 1 255\n   ")
    (photos / "b" / "3.jpg").symlink_to("nothing")
    (photos / "b" / os.fsdecode(b"sch\xf6n.jpg")).write_bytes(whole)
    assert run("--dataset", "folder", "--data_dir", photos) == 1
    out = capsys.readouterr().out
    for text in (
        r"b/sch\udcf6n.jpg",
        "b/3.jpg",
        f"a/0.jpg (0 bytes, {NONE})",
        f"b/0.jpg ({len(whole) - 40:,} bytes, {NONE})",
        f"b/1.jpg (14 bytes, {NONE})",
        "Repair what was found, or skip it with --skip_invalid true",
    ):
        assert text in out
    with pytest.raises(FileNotFoundError, match=r"2 of 8 images that .* UTF-8: .*b/3.jpg"):
        pipelines.load("folder", photos)


def test_prints_what_is_broken_where_too_little_is_left(photos, capsys):
    for path in (photos / "a").iterdir():
        path.write_bytes(b"heic")
    assert run("--dataset", "folder", "--data_dir", photos) == 1
    out = capsys.readouterr().out
    assert f"a/2.jpg (4 bytes, {NONE})" in out
    assert "without these too little is left: dataset 'folder' must" in out


EXCESS = "20,000 x 10,000 pixels, more than the limit of 178,956,970"


@pytest.fixture
def huge(photos):
    """A file of the first class, with a header of more pixels than are read."""
    (photos / "a" / "huge.gif").write_bytes(claiming("gif", 20_000, 10_000))
    return photos / "a" / "huge.gif"


@pytest.mark.filterwarnings("error")
def test_an_image_of_too_many_pixels_is_found(photos, huge, capsys):
    assert run("--dataset", "folder", "--data_dir", photos) == 1
    assert f"{huge} ({huge.stat().st_size:,} bytes, {EXCESS})" in capsys.readouterr().out
    with pytest.warns(UserWarning, match=r"left out 1 .*huge\.gif .* pixels, more than the limit"):
        split = pipelines.load("folder", photos, skip_invalid=True).both()
    assert len(split.images) == 6


def test_an_image_of_too_many_pixels_has_no_box(photos, huge, capsys, tmp_path_factory):
    boxes = tmp_path_factory.mktemp("boxes") / "boxes.csv"
    lines = [f"{path.relative_to(photos)},0,0,1,1" for path in photos.glob("*/*")]
    boxes.write_text("\n".join(["path,x1,y1,x2,y2", *lines]))
    with pytest.raises(ValueError, match=r"huge\.gif cannot be read .20,000 x 10,000 pixels, more"):
        pipelines.load("folder", photos, boxes=boxes)
    assert run("--dataset", "folder", "--data_dir", photos, "--boxes", boxes) == 1
    assert EXCESS in capsys.readouterr().out


def test_a_run_names_an_image_of_too_many_pixels(photos, monkeypatch):
    Image.new("L", (30, 20)).save(photos / "b" / "huge.png")
    monkeypatch.setattr(decoding, "MAX_PIXELS", 500)
    monkeypatch.setattr(image_headers, "MAX_PIXELS", 500)
    split = pipelines.load("folder", photos).both()
    message = r"b/huge\.png cannot be read \(.* bytes, 30 x 20 pixels, more than .* 500\)"
    with pytest.raises(OSError, match=message), named(split):
        list(pipelines.evaluation_batches(split, (8, 8, 3)))


def test_a_dataset_without_files_or_folder_is_an_error(photos, capsys):
    assert run("--dataset", "digits") == 2
    assert "must be of image files. Received: dataset='digits'" in capsys.readouterr().err
    assert run("--dataset", "folder", "--data_dir", photos / "missing") == 2


def test_what_can_be_read_is_not_decoded_again_until_it_changes(photos, monkeypatch):
    decoded, problem = [], unreadable_files._problem

    def noted(path):
        decoded.append(path)
        return problem(path)

    monkeypatch.setattr(unreadable_files, "_problem", noted)
    paths = sorted(str(path) for path in photos.glob("*/*"))
    assert list(unreadable(paths)) == []
    assert sorted(decoded) == paths
    decoded.clear()
    assert list(unreadable(paths)) == []
    assert decoded == []
    os.utime(paths[1], ns=(0, 0))
    with open(paths[2], "ab") as file:
        file.write(b"\0")
    (photos / "a" / "0.jpg").write_bytes(b"text")
    assert [row for row, _ in unreadable(paths)] == [0]
    assert sorted(decoded) == paths[:3]
    decoded.clear()
    assert list(unreadable(paths)) == [(0, f"4 bytes, {NONE}")]  # anew
    assert decoded == paths[:1]


def test_a_broken_or_missing_memory_is_done_without(photos, tmp_path, monkeypatch):
    paths = sorted(photos.glob("*/*"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(paths[0]))  # a file, not a folder
    assert list(unreadable(paths)) == []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "tfdml").mkdir()
    (tmp_path / "tfdml" / "images.sqlite").write_bytes(b"no database" * 100)
    assert list(unreadable(paths)) == []


def test_tensorflow_is_imported_by_no_thread_that_reads(photos, monkeypatch):
    threads = []
    importing = "pipelines.unreadable.import_tensorflow"
    monkeypatch.setattr(importing, lambda: threads.append(threading.current_thread()))
    assert list(unreadable(sorted(photos.glob("*/*")))) == []
    assert threads == [threading.main_thread()]
