import pathlib

from tfdml.runs.scoring.scored_model import ScoredModel, completed
from tfdml.runs.task_options import Retrieval


def test_images_of_the_training_are_known_however_their_place_is_written(tmp_path):
    for folder in ("tables", "others/tables"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.csv").write_text("path,label\n")
    (tmp_path / "link").symlink_to("tables")

    def scored(trained, given):
        recipe = {"dataset": "csv", "data_dir": trained, "validation_share": 0.5, "boxes": "b.csv"}
        options = Retrieval("model", dataset="csv", data_dir=given)
        options = completed(options, ScoredModel(pathlib.Path("model"), recipe))
        return options.split, options.boxes

    places = ["tables", "tables/x.csv", "./others/../tables", "link", "link/x.csv"]
    for trained in places:
        for given in places:
            assert scored(trained, given) == ("validation", "b.csv")
        for given in ("others/tables", "others/tables/x.csv"):
            assert scored(trained, given) == ("test", None)
