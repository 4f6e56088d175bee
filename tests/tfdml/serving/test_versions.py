import pytest

from tfdml.serving.versions import new_version, newest_version


def test_a_version_appears_whole(tmp_path):
    path = tmp_path / "model" / "3"
    with new_version(path) as unfinished:
        (unfinished / "part").touch()
        # What a server that watches the folder would take for a version.
        assert not list(path.parent.glob("[0-9]*"))
    assert [file.name for file in path.iterdir()] == ["part"]
    assert [each.name for each in path.parent.iterdir()] == ["3"]
    with pytest.raises(FileExistsError, match="A version is never overwritten"), new_version(path):
        pass


def test_what_fails_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="full"), new_version(tmp_path / "model" / "1"):
        raise OSError("full")
    assert not list(tmp_path.iterdir())


def test_of_two_exports_at_once_the_first_to_end_becomes_the_version(tmp_path):
    path = tmp_path / "1"
    slow = new_version(path)
    unfinished = slow.__enter__()
    with new_version(path) as fast:
        (fast / "fast").touch()
    assert unfinished.exists()
    with pytest.raises(FileExistsError, match="A version is never overwritten"):
        slow.__exit__(None, None, None)
    assert [file.name for file in path.iterdir()] == ["fast"]
    assert [each.name for each in tmp_path.iterdir()] == ["1"]


def test_a_stray_file_is_no_version(tmp_path):
    (tmp_path / "7").write_text("no version")
    (tmp_path / "6").mkdir()
    with pytest.raises(FileNotFoundError, match="no SavedModel at"):
        newest_version(tmp_path)
    (tmp_path / "6" / "saved_model.pb").touch()
    assert newest_version(tmp_path) == tmp_path / "6"
