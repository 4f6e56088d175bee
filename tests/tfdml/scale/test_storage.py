import os
import pathlib

import fsspec
import pytest

from tfdml.scale.storage import NO_FILE, Folder, fetch


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    if request.param == "local":
        yield Folder(tmp_path / "folder")
    else:
        yield Folder("memory://written")
        memory = fsspec.filesystem("memory")
        if memory.exists("/written"):
            memory.rm("/written", recursive=True)


def test_a_file_is_written_whole_or_not_at_all(folder):
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
