"""evaluate.py on the folder of a run, here and on another machine."""

import json
import pathlib
import re
import shutil

import pytest
import yaml
from PIL import Image

from tfdml import checks
from tfdml.evaluation import load_queries
from tfdml.programs import evaluate
from tfdml.serving import export_model
from tfdml.serving.metadata import read_metadata


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder with photos, and with a run and its export."""
    import keras

    folder = tmp_path_factory.mktemp("machine")
    for row in range(8):
        file = folder / "data" / "photos" / f"class {row // 2}" / f"{row}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (30 * row, 100, 5)).save(file)
    recipe = {
        "dataset": "folder",
        "data_dir": str(folder / "data" / "photos"),
        "weights": str(folder / "weights.npz"),
        "boxes": None,
        "embedding_dim": 3,
        "validation_share": 0.5,
        "run": "small",
    }
    (folder / "runs" / "small").mkdir(parents=True)
    (folder / "runs" / "small" / "config.yaml").write_text(yaml.safe_dump(recipe))
    layers = [keras.Input((4, 4, 3)), keras.layers.GlobalAveragePooling2D()]
    scores = {"untrained": {"recall@1": 0.25}, "trained": {"recall@1": 0.5}}
    version = folder / "saved_models" / "small" / "1"
    known = {"recipe": recipe, "scores": {**scores, "scored_classes": "validation"}}
    export_model(keras.Sequential(layers), version, metadata=known)
    return folder


@pytest.fixture
def machine(exported, tmp_path, monkeypatch):
    """A copy of that folder, on which the images stand where they stood."""
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return exported


def test_an_export_holds_no_folder_of_the_trainer(machine):
    version = pathlib.Path("saved_models/small/1")
    assert str(machine.parent) not in (version / "assets.extra" / "metadata.json").read_text()
    recipe = read_metadata(version)["recipe"]
    assert (recipe["data_dir"], recipe["weights"]) == ("photos", "weights.npz")


def test_a_run_is_scored_on_its_own_images(machine, capsys):
    evaluate.main(["runs/small", "--nmi=false", "--report", "report"])
    content = json.loads(pathlib.Path("runs/small/evaluation_validation.json").read_text())
    assert content["version"] == "saved_models/small/1"
    assert content["data_dir"] == str(machine / "data" / "photos")
    printed = capsys.readouterr().out
    assert "Scores: runs/small/evaluation_validation.json" in printed
    assert content["untrained"] == {"recall@1": 0.25}
    assert "untrained 0.2500" in printed
    page = pathlib.Path("report/index.html").read_text()
    assert "<h1>small on folder photos (validation)</h1>" in page
    assert "untrained 0.2500" in page
    names = [f"class 1/{row}.png" for row in (2, 3)]
    assert json.dumps(names, separators=(",", ":")) in page
    rows = pathlib.Path("report/projector/metadata.tsv").read_text().splitlines()
    assert [row.split("\t")[-1] for row in rows] == ["image", *names]
    assert load_queries("runs/small/evaluation_validation_queries.npz").ids.tolist() == names


def test_a_run_is_scored_on_its_own_images_from_another_folder(machine, tmp_path, monkeypatch):
    config = pathlib.Path("runs/small/config.yaml")
    recipe = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump(recipe | {"data_dir": "data/photos"}))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    evaluate.main(["../saved_models/small", "--nmi=false"])
    content = json.loads(pathlib.Path("runs/small/evaluation_validation.json").read_text())
    assert content["data_dir"] == "../data/photos"
    assert content["untrained"] == {"recall@1": 0.25}


@pytest.mark.usefixtures("machine")
def test_the_scores_of_a_run_are_written_into_its_folder(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    evaluate.main(["../runs/small", "--nmi=false"])
    assert (tmp_path / "runs/small/evaluation_validation.json").is_file()
    assert (tmp_path / "runs/small/evaluation_validation_queries.npz").is_file()
    assert not pathlib.Path("runs").exists()


@pytest.mark.usefixtures("machine")
def test_the_images_of_a_run_that_goes_on_for_more_steps_are_found():
    config = pathlib.Path("runs/small/config.yaml")
    recipe = yaml.safe_load(config.read_text())
    version = pathlib.Path("saved_models/small/1/assets.extra/metadata.json")
    metadata = json.loads(version.read_text())
    metadata["recipe"]["steps"] = 2
    version.write_text(json.dumps(metadata))
    config.write_text(yaml.safe_dump(recipe | {"steps": 4}))
    evaluate.main(["saved_models/small", "--nmi=false"])
    assert pathlib.Path("runs/small/evaluation_validation.json").is_file()


@pytest.mark.usefixtures("machine")
def test_other_images_have_no_untrained_scores():
    evaluate.main(["runs/small", "--split", "all", "--nmi=false"])
    content = json.loads(pathlib.Path("runs/small/evaluation_all.json").read_text())
    assert "untrained" not in content


@pytest.mark.usefixtures("machine")
def test_elsewhere_the_folder_of_the_images_must_be_given(capsys):
    pathlib.Path("runs/small/config.yaml").unlink()
    with pytest.raises(SystemExit, match="2"):
        evaluate.main(["saved_models/small"])
    assert "give `--data_dir`. Received: data_dir=None, name='photos'" in capsys.readouterr().err
    evaluate.main(["saved_models/small", "--data_dir", "data/photos", "--nmi=false"])
    assert pathlib.Path("runs/small/evaluation_validation.json").is_file()


@pytest.mark.usefixtures("machine")
def test_what_cannot_fit_in_the_memory_is_rejected(monkeypatch, capsys):
    monkeypatch.setattr(checks, "total_memory", lambda: 10)
    with pytest.raises(SystemExit, match="2"):
        evaluate.main(["runs/small"])
    message = "the embeddings must fit in the memory, .*images=2, embedding_dim=3, needed="
    assert re.search(message, capsys.readouterr().err)
