import json

import pytest
import yaml

from tfdml.runs.exporting import check_same_run
from tfdml.serving.metadata import places_of, without_folders
from tfdml.serving.versions import newest_version


@pytest.fixture
def write_version(tmp_path):
    """Writes a version and, with a config, the run beside it."""

    def write(place, data_dir, *, places=None, config=None):
        recipe = {"run": "r", "dataset": "folder", "data_dir": data_dir, "steps": 2}
        version = tmp_path / place / "1"
        (version / "assets.extra").mkdir(parents=True)
        (version / "saved_model.pb").touch()
        metadata = {"recipe": without_folders(recipe)}
        if places:
            metadata["places"] = places_of(recipe)
        (version / "assets.extra" / "metadata.json").write_text(json.dumps(metadata))
        if config:
            (tmp_path / config).mkdir(parents=True)
            (tmp_path / config / "config.yaml").write_text(yaml.safe_dump(recipe))
        return version

    return write


@pytest.mark.parametrize("kept_in", ["versions", "runs"])
def test_runs_on_two_folders_of_one_name_are_two(tmp_path, write_version, kept_in):
    for folder in ("a/photos", "b/photos"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    trained, same, other = (
        write_version(
            f"{place}/saved_models/r",
            str(tmp_path / folder / "photos"),
            places=kept_in == "versions",
            config=f"{place}/runs/r" if kept_in == "runs" else None,
        )
        for place, folder in (("x", "a"), ("y", "link"), ("z", "b"))
    )
    check_same_run(same.parent, trained)
    with pytest.raises(FileExistsError, match="is of another run: choose another folder"):
        check_same_run(other.parent, trained)
    unknown = write_version("exported/r", str(tmp_path / "b" / "photos"))
    check_same_run(unknown.parent, trained)  # as by earlier versions, elsewhere than its run


def test_a_stray_file_is_no_version(tmp_path):
    (tmp_path / "7").write_text("no version")
    (tmp_path / "6").mkdir()
    with pytest.raises(FileNotFoundError, match="no SavedModel at"):
        newest_version(tmp_path)
    (tmp_path / "6" / "saved_model.pb").touch()
    assert newest_version(tmp_path) == tmp_path / "6"
