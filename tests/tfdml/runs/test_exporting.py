import pytest

from tfdml.serving.versions import newest_version


def test_a_stray_file_is_no_version(tmp_path):
    (tmp_path / "7").write_text("no version")
    (tmp_path / "6").mkdir()
    with pytest.raises(FileNotFoundError, match="no SavedModel at"):
        newest_version(tmp_path)
    (tmp_path / "6" / "saved_model.pb").touch()
    assert newest_version(tmp_path) == tmp_path / "6"
