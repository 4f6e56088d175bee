import pathlib

import pytest

from tfdml.runs.scoring.scored_model import ScoredModel, completed
from tfdml.runs.task_options import Retrieval


@pytest.fixture
def tables(tmp_path):
    """A folder with a CSV file, a link to it, and another of its name."""
    for folder in ("tables", "others/tables"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.csv").write_text("path,label\n")
    (tmp_path / "link").symlink_to("tables")
    (tmp_path / "boxes.csv").touch()
    return tmp_path


def settings_of(trained, scored, boxes=None):
    recipe = {"dataset": "csv", "data_dir": trained, "validation_share": 0.5, "boxes": "boxes.csv"}
    settings = Retrieval("model", dataset="csv", data_dir=scored, boxes=boxes)
    return completed(settings, ScoredModel(pathlib.Path("model"), recipe))


@pytest.mark.usefixtures("tables")
def test_images_of_the_training_are_known_however_their_place_is_written():
    places = ["tables", "tables/x.csv", "./others/../tables", "link", "link/x.csv"]
    for trained in places:
        for scored in places:
            assert settings_of(trained, scored).split == "validation"
        assert settings_of(trained, "others/tables").split == "test"
        assert settings_of(trained, "others/tables/x.csv").split == "test"


def test_boxes_of_the_training_are_known_however_their_path_is_written(tables):
    for boxes in (None, "./boxes.csv", str(tables / "boxes.csv")):
        assert settings_of("tables", "link", boxes).boxes == "boxes.csv"
    assert settings_of("tables", "link", "link/x.csv").boxes == "link/x.csv"
