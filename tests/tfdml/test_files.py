import pytest

from tfdml.files import replacing


@pytest.mark.parametrize("name", [None, "other"])
def test_a_file_is_replaced_when_the_block_ends(name, tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    with replacing(path, name and tmp_path / name) as unfinished:
        assert unfinished == tmp_path / (name or "file.unfinished")
        unfinished.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


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
