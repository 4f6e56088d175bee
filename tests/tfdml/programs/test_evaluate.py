"""evaluate.py in this process: the images it scores, how it ranks them, and what it rejects."""

import json
import os
import pathlib
import shutil
import types

import programs
import pytest
import tensorflow as tf
from small_runs import write_images
from small_scores import evaluate_here, evaluation_of, rejection

import pipelines
from tfdml.programs import evaluate, train
from tfdml.runs import run_export, scoring
from tfdml.runs.run_images import load_images
from tfdml.runs.scoring.scored_images import Images


@pytest.fixture
def version(exported_run, tmp_path, monkeypatch):
    """A copy of the version that this run exported; the working folder is an empty one."""
    version = tmp_path / "saved_models" / "small" / "1"
    shutil.copytree(exported_run / "saved_models" / "small" / "1", version)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return version


def test_the_saved_model_is_scored_on_its_own_data(exported_run):
    result = programs.run(evaluate.main, "saved_models/small", "--k", "2", cwd=exported_run)
    assert result.code == 0, result.err
    run = exported_run / "runs" / "small"
    scores = json.loads((run / "evaluation.json").read_text())["scores"]
    reported = json.loads((run / "scores.json").read_text())["untrained"]
    assert scores["recall@2"] == pytest.approx(reported["recall@2"], abs=2e-3)
    at_2 = {f"{name}@2" for name in ("recall", "precision", "ndcg")}
    assert set(scores) == {*at_2, "map", "map@r", "r_precision", "mrr", "nmi", "ami", "f1"}
    assert 0 < scores["nmi"] <= 1
    assert f"{scores['nmi']:.4f}" in result.out


@pytest.mark.filterwarnings("ignore:1 of 3 queries")
@pytest.mark.filterwarnings("ignore:1 of 5 queries")
def test_half_a_folder_or_all_of_it_is_scored(version, tmp_path, capsys):
    photos = write_images(tmp_path / "photos", {"a": 1, "b": 2, "c": 2})
    data = ["--dataset", "folder", "--data_dir", photos]
    evaluate_here(version, *data)
    assert "on 4 images of 2 classes (test) of folder" in capsys.readouterr().out
    assert "distances" in evaluation_of("evaluation_folder_photos")
    (photos / "c").rename(tmp_path / "c")
    evaluate_here(version, *data)  # without pairs of one class and of two
    assert "distances" not in evaluation_of("evaluation_folder_photos")
    evaluate_here(version, *data, "--split", "all")
    assert "on 3 images of 2 classes (all) of folder" in capsys.readouterr().out
    assert evaluation_of("evaluation_folder_photos_all")["distances"]["positive_variance"] == 0


@pytest.mark.parametrize("trained", [0, 1])
def test_a_version_is_exported_again_with_its_own_weights(version, trained, monkeypatch):
    """That of this run has no steps; its checkpoint may be of a further training."""
    optimizer = types.SimpleNamespace(iterations=trained)
    model = types.SimpleNamespace(optimizer=optimizer)
    monkeypatch.setattr(run_export, "read_model", lambda path: model)
    run = pathlib.Path("runs", "small")
    run.mkdir(parents=True)
    (run / "checkpoint.keras").touch()
    if not trained:
        assert run_export.load_run(run, version) is model
        return
    with pytest.raises(ValueError, match=r"trained further than .*steps=1, version=0"):
        run_export.load_run(run, version)


def test_ids_of_images_are_their_paths_in_the_folder_of_a_csv_file(version, tmp_path):
    photos = write_images(tmp_path / "photos", {"a": 2})
    paths = sorted(map(str, photos.rglob("*.png")))
    (tmp_path / "images.csv").touch()
    split = pipelines.Split(paths, [0, 0])
    for data_dir in (tmp_path, tmp_path / "images.csv"):
        given = [str(version), "--dataset", "csv", "--data_dir", str(data_dir)]
        ids = Images(split).ids(evaluate.parse("retrieval", given))
        assert ids == [os.path.relpath(path, tmp_path) for path in paths]


def test_images_of_a_csv_file_are_trained_on_and_scored_in_their_boxes(version, tmp_path, capsys):
    write_images(tmp_path / "photos", dict.fromkeys("abcd", 2))
    rows = ["path,label,x1,y1,x2,y2"]
    for path in sorted((tmp_path / "photos").rglob("*.*")):
        rows.append(f"{path.relative_to(tmp_path)},{path.parent.name},1,2,5,4")
    table = tmp_path / "images.csv"
    table.write_text("\n".join(rows))
    data = ["--dataset", "csv", "--data_dir", str(table), "--boxes", "annotated"]
    recipe, *_ = train.parse([*data, "--classes_per_batch", "2"])
    split, *_ = load_images(recipe)
    assert split.boxes.tolist() == [[1, 2, 5, 4]] * 4
    assert "csv: 4 images of 2 classes to train, 4 of 2 to score" in capsys.readouterr().out
    evaluate_here(version, *data, "--split", "all")
    evaluate_here(version, *data[:4], "--split", "all")
    assert sorted(path.name for path in pathlib.Path("runs", "small").glob("*.json")) == [
        "evaluation_csv_images.csv_all.json",
        "evaluation_csv_images.csv_in_annotated_all.json",
    ]


def change_recipe(version, **settings):
    path = version / "assets.extra" / "metadata.json"
    metadata = json.loads(path.read_text())
    assert settings.keys() <= metadata["recipe"].keys()
    metadata["recipe"].update(settings)
    path.write_text(json.dumps(metadata))


def test_classes_that_were_trained_on_get_a_warning(version, capsys):
    evaluate_here(version, "--split", "all")
    warning = "tfdml-evaluate: warning: 5 of the 10 scored classes were trained on, such as 0\n"
    assert warning in capsys.readouterr().err
    evaluate_here(version)
    assert "warning" not in capsys.readouterr().err


def test_validation_classes_of_a_model_that_had_some_are_scored(version, capsys):
    message = rejection(version, "--split", "validation")
    assert "`split` can be validation" in message
    assert "--validation_share" in message
    change_recipe(version, validation_share=0.4)
    evaluate_here(version)
    assert "of 2 classes (validation) of digits" in capsys.readouterr().out
    evaluate_here(version, "--split", "test")
    assert "of 5 classes (test) of digits" in capsys.readouterr().out
    evaluate_here(version, "--split", "train")
    output = capsys.readouterr()
    assert "of 3 classes (train) of digits" in output.out
    assert "warning" not in output.err
    message = rejection(version, "--split", "train", "--dataset", "glyphs")
    assert "`split` can be train for the images of the training" in message


def test_the_neighbours_that_there_are_are_counted(version, tmp_path):
    photos = write_images(tmp_path / "photos", {"a": 2, "b": 2, "c": 2})
    data = [version, "--dataset", "folder", "--data_dir", photos, "--nmi", "false"]
    printed = programs.run(evaluate.main, *data, cwd=".").out
    assert "recall@2" in printed
    assert "recall@4" not in printed
    message = rejection(*data, "--k", "[1, 4]")
    assert "`k`" in message
    assert "Received: k=[1, 4], neighbours=3" in message


def test_the_scores_of_a_model_without_a_version_are_named_after_it(version, tmp_path):
    shutil.copytree(version, tmp_path / "flat")
    evaluate_here(tmp_path / "flat")
    assert pathlib.Path("runs", "flat", "evaluation.json").is_file()


def test_an_image_lost_while_it_embeds_is_named(version, tmp_path, monkeypatch):
    photos = write_images(tmp_path / "photos", {"a": 2, "b": 2})
    lost = photos / "b" / "1.png"
    load_images = scoring.load_images

    def load_and_lose(*arguments):
        images = load_images(*arguments)
        lost.unlink()
        return images

    monkeypatch.setattr(scoring, "load_images", load_and_lose)
    message = rejection(version, "--dataset", "folder", "--data_dir", photos)
    assert f"error: {lost} cannot be read (missing)" in message


def test_ctrl_c_stops_the_evaluation(version, monkeypatch, capsys):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(scoring, "load_images", interrupted)
    with pytest.raises(SystemExit, match="130"):
        evaluate_here(version)
    assert capsys.readouterr().err.endswith("tfdml-evaluate: stopped\n")


def test_the_run_of_a_version_given_as_a_dot_is_named(version, monkeypatch):
    monkeypatch.chdir(version)
    evaluate_here(".")
    content = json.loads((version / "runs" / "small" / "evaluation.json").read_text())
    assert content["dataset"] == "digits"


@pytest.mark.parametrize("metadata", [None, '{"recipe": {"x": 1}}', "[1]", "\xff"])
def test_foreign_metadata_need_a_dataset(metadata, version):
    path = version / "assets.extra" / "metadata.json"
    path.unlink() if metadata is None else path.write_bytes(metadata.encode("latin1"))
    assert "give --dataset" in rejection(version)


def test_a_broken_saved_model_is_rejected(version):
    (version / "saved_model.pb").write_bytes(b"half a file")
    result = programs.run(evaluate.main, version, cwd=".")
    assert f"error: {version} cannot be read (" in result.sentence
    assert len(result.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "output"),
    [
        ("pixels", [None, 8, 8, 1], "float32", "embedding"),
        ("images", [None, None, 8, 1], "float32", "embedding"),
        ("images", [None, 8, 8, 4], "float32", "embedding"),
        ("images", [None, 8, 8, 1], "uint8", "embedding"),
        ("images", [None, 8, 8, 1], "float32", "features"),
    ],
)
def test_another_signature_is_rejected(name, shape, dtype, output, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    embed = tf.function(lambda pixels: {output: tf.reduce_mean(pixels, axis=[1, 2])})
    spec = tf.TensorSpec(shape, tf.as_dtype(dtype), name=name)
    signatures = {"embed_images": embed.get_concrete_function(spec)}
    tf.saved_model.save(tf.Module(), "foreign", signatures)
    message = rejection("foreign", "--dataset", "digits")
    assert "must take float32 `images` of a fixed size, grey or RGB, and" in message


def test_a_folder_that_cannot_be_written_is_rejected_before_images_are_read(version):
    pathlib.Path("runs").write_text("a file where the folder should be")
    message = rejection(version, "--dataset", "folder", "--data_dir", "missing")
    assert "cannot write to" in message


def test_a_model_without_a_learned_similarity_is_rejected_with_advice(version):
    message = rejection(version, "--k", "1", "--rerank", "9")
    assert "has no learned similarity to rank by" in message
    assert "--loss pddm" in message
