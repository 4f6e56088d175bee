import errno
import os
import pathlib

import numpy as np
import pytest

from tfdml.files import (
    check_writable,
    copies,
    identity,
    locked,
    naming,
    read_settings,
    read_text,
    replacing,
    shortened,
    write_text,
)


@pytest.mark.parametrize("name", [None, "other"])
def test_a_file_is_replaced_when_the_block_ends(name, tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    with replacing(path, name and tmp_path / name) as unfinished:
        assert unfinished.parent == tmp_path
        assert name in (None, unfinished.name)
        unfinished.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_writes_of_one_file_at_once_are_kept_apart(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as first, replacing(path) as second:
        assert first.name.endswith(".unfinished")
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127 + "x"])
def test_a_file_of_any_name_is_replaced(name, tmp_path):
    write_text(tmp_path / name, "text")
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("letter", ["x", "é", "日", "\udcff"])
def test_a_long_name_is_shortened_to_one_of_its_own(letter):
    assert shortened(letter * 80, ".json") == f"{letter * 80}.json"
    names = {shortened(letter * 300 + end, ".json") for end in "ab"}
    assert len(names) == 2
    for name in names:
        assert name.endswith(".json")
        assert len(name.encode()) <= 255
        assert shortened(name) == name


def test_what_fails_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")

    def write_a_half():
        with replacing(path) as unfinished:
            unfinished.write_text("a half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_a_half()
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_text("scores"),
        lambda path: np.savez_compressed(
            path.open("wb"), rows=np.random.default_rng(0).random(9999)
        ),
    ],
    ids=["text", "archive"],
)
def test_a_full_disk_is_named(write, tmp_path):
    path = tmp_path / "scores"

    def write_to_full_disk():
        with replacing(path) as unfinished:
            unfinished.symlink_to("/dev/full")
            write(unfinished)

    with pytest.raises(OSError, match=r"No space left on device: '.*/scores'"):
        write_to_full_disk()
    assert not list(tmp_path.iterdir())


def test_the_name_of_an_error_stays(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"), naming("other"):
        (tmp_path / "missing").read_text()


def test_a_file_system_without_locks_is_worked_on(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def fails_with(number):
        def flock(*_):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "flock", flock)

    fails_with(errno.ENOLCK)
    with locked(tmp_path, "taken"):
        pass
    fails_with(errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)), locked(tmp_path, "taken"):
        pass


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_text_is_read_with_and_without_a_mark(encoding, tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("ü → 猫\n", encoding)
    assert read_text(path) == "ü → 猫\n"
    path.write_bytes("ü".encode("latin-1"))
    with pytest.raises(ValueError, match=rf"{path} must be a text file in UTF-8"):
        read_text(path)


def test_folders_that_cannot_be_written_are_named(tmp_path, monkeypatch):
    check_writable(tmp_path / "new" / "folder", tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(PermissionError, match=f"cannot write to {tmp_path / 'file'}"):
        check_writable(tmp_path / "file" / "folder")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(PermissionError, match=f"cannot write to {tmp_path}"):
        check_writable(tmp_path / "new" / "folder")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: " + "[" * 2_000, "recursion"),
        ("[1, 2]", "not lines of `name: value`"),
        ("", "not lines of `name: value`"),
        ("a: [", "while parsing a flow node"),
        ("a: \xff", "can't decode byte"),
    ],
)
def test_settings_that_cannot_be_are_named(content, said, tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match=f"settings.yaml cannot be read: .*{said}") as error:
        read_settings(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "spelling",
    [
        "photos/a.png",
        "./photos//a.png",
        "{folder}/photos/../photos/a.png",
        "folder/a.png",
        "folder/../photos/a.png",
        "link.png",
        "hard.png",
        "file://{folder}/photos/a.png",
        "file://{folder}/folder/../photos/a.png",
        "local://{folder}/photos/a.png",
        "simplecache::file://{folder}/link.png",
    ],
)
def test_a_file_is_the_same_however_its_path_is_written(spelling, tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_text("a")
    (tmp_path / "folder").symlink_to("photos")
    (tmp_path / "link.png").symlink_to("photos/a.png")
    os.link(tmp_path / "photos" / "a.png", tmp_path / "hard.png")
    monkeypatch.chdir(tmp_path)
    spelling = spelling.format(folder=tmp_path)
    assert identity(spelling) == identity(tmp_path / "photos" / "a.png")
    if not spelling.endswith(("link.png", "hard.png")):  # without the file, by the path alone
        (tmp_path / "photos" / "a.png").unlink()
        assert identity(spelling) == identity(tmp_path / "photos" / "a.png")


def test_files_of_one_name_are_two(tmp_path, monkeypatch):
    for folder in ("a", "b", "a/b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.png").write_text("same")
    (tmp_path / "link").symlink_to("a/b")
    monkeypatch.chdir(tmp_path)
    # `link/..` is the folder that the link leads to, not that of the link.
    paths = ["a/1.png", "b/1.png", "link/1.png", "file:///1.png", "s3://a/1.png", "none/1.png"]
    assert len(set(map(identity, paths))) == len(paths)
    assert identity("link/../1.png") == identity("a/1.png")


def test_copies_are_other_files_of_the_same_content(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    long = "x" * 5000
    contents = {"a": "a", "copy": "a", "b": "b", "long": f"{long}1", "other": f"{long}2"}
    for name, text in contents.items():
        pathlib.Path(name).write_text(text)
    os.symlink("a", "link")
    others = ["a", "link", "b", "other", "missing", "s3://copy", f"file://{tmp_path}/copy"]
    assert [*copies(["a", "b", "long", "gone"], others)] == [("a", f"{tmp_path}/copy")]
    assert [*copies(["a", "copy"], ["copy", "a"])] == [("a", "copy"), ("copy", "a")]
