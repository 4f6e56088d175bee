import os
import pathlib
import zipfile

import fsspec
import pytest

from tfdml.scale.storage import NO_FILE, Folder, around_path, fetch


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_a_file_is_written_whole_or_not_at_all(kind, tmp_path):
    folder = Folder(f"{kind}://{tmp_path}/folder")

    def half(file):
        file.write(b"a half")
        raise OSError("full")

    assert folder.names() == folder.names("inner") == set()
    folder.write("inner/a", lambda file: file.write(b"content"))
    with pytest.raises(OSError, match="full"):
        folder.write("inner/b", half)
    assert folder.names() == {"inner"}
    assert folder.names("inner") == {"a"}
    with folder.open("inner/a") as file:
        assert file.read() == b"content"


def test_the_reason_of_a_single_file_is_returned(tmp_path):
    (tmp_path / "a b.png").write_bytes(b"a")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert fetch(str(tmp_path / "a b.png")) == b"a"
    assert fetch(f"file://{tmp_path}/a b.png") == b"a"
    assert fetch(str(tmp_path / "none")) == fetch("memory://none") == NO_FILE
    os.mkfifo(tmp_path / "pipe.png")
    for other in (tmp_path, tmp_path / "pipe.png"):
        assert fetch(str(other)) == "it is not a regular file"
    assert "symbolic links" in fetch(str(tmp_path / "loop"))


@pytest.mark.parametrize("error", [TimeoutError("slow"), PermissionError(13, "token expired")])
def test_an_error_that_may_pass_is_raised(error, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "cat_file", fail)
    with pytest.raises(OSError, match=r"memory://a cannot be read \(.*(slow|expired)"):
        fetch("memory://a")
    if isinstance(error, TimeoutError):
        monkeypatch.setattr(pathlib.Path, "read_bytes", fail)
        with pytest.raises(OSError, match="cannot be read"):
            fetch(__file__)


@pytest.mark.parametrize(
    ("url", "path", "expected"),
    [
        ("s3://bucket/photos/", "bucket/photos", ("s3://", "")),
        ("memory://photos", "/photos", ("memory://", "")),
        ("sftp://me@host/photos", "/photos", ("sftp://me@host", "")),
        ("sftp://me@host/", "/", ("sftp://me@host", "")),
        ("http://host/list.parquet", "http://host/list.parquet", ("", "")),
        ("zip://::s3://bucket/a.zip", "", ("zip://", "::s3://bucket/a.zip")),
        ("simplecache::s3://bucket/a", "bucket/a", ("simplecache::s3://", "")),
        ("zip://a::tar://b.zip::/c.tar", "a", ("zip://", "::tar://b.zip::file:///c.tar")),
    ],
)
def test_what_is_around_the_path_of_a_url(url, path, expected):
    assert around_path(url, path) == expected


def test_an_archive_is_opened_once_until_it_changes(tmp_path, monkeypatch):
    def write(*contents):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            for number, content in enumerate(contents):
                archive.writestr(f"{number}.png", content)

    opened, url_to_fs = [], fsspec.core.url_to_fs
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: opened.append(url) or url_to_fs(url))
    urls = [f"zip://{number}.png::{tmp_path}/a.zip" for number in range(3)]
    write("a", "b")
    assert [fetch(url) for url in urls] == [b"a", b"b", NO_FILE]
    write("c")
    os.utime(tmp_path / "a.zip", ns=(0, 0))
    assert fetch(urls[0]) == b"c"
    assert len(opened) == 2
    os.remove(tmp_path / "a.zip")
    assert fetch(urls[0]) == NO_FILE
