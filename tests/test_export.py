"""A run exported by the three programs: with what is said of it, rounded, with classes to name."""

import dataclasses
import json
import pathlib

import numpy as np
import programs
import pytest
import tensorflow as tf
from PIL import Image

import pipelines
from tfdml import export, runs
from tfdml.evaluation import open_set_decision, recall_at_k
from tfdml.programs import evaluate, train
from tfdml.serving import load_network
from tfdml.serving.metadata import read_metadata
from tfdml.serving.versions import megabytes

pytestmark = pytest.mark.usefixtures("without_xla", "loaded_once", "few_digits")

SMALL = ["--dataset", "digits", "--embedding_dim", "4", "--classes_per_batch", "5"]
SMALL += ["--steps", "2", "--checkpoint_every", "2", "--run", "small"]
OPTIONS = ["--export_options.licence", "CC-BY-4.0", "--export_options.on_bad_image", "nan"]
MODEL = pathlib.Path("saved_models", "small")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder in which a small run was trained and exported."""
    folder = tmp_path_factory.mktemp("exported")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train.main([*SMALL, *OPTIONS])
    return folder


@pytest.fixture
def here(trained, monkeypatch):
    monkeypatch.chdir(trained)


@pytest.fixture(scope="module")
def test_split():
    return pipelines.load("digits").test


def signatures_of(version):
    return tf.saved_model.load(str(version)).signatures


def embeddings_of(version, images):
    embed = signatures_of(version)["embed_images"]
    return embed(images=tf.constant(images, tf.float32))["embedding"].numpy()


def test_train_states_what_it_exports(here):
    stated = read_metadata(MODEL / "1")
    assert stated["licence"] == "CC-BY-4.0"
    assert stated["on_bad_image"] == "nan"
    assert stated["trained_classes"] == ["0", "1", "2", "3", "4"]
    assert stated["scores"] == json.loads(pathlib.Path("runs/small/scores.json").read_text())
    assert stated["recipe"]["export_options"] == {"licence": "CC-BY-4.0", "on_bad_image": "nan"}
    embed = signatures_of(MODEL / "1")["serving_default"]
    assert embed(image_bytes=tf.constant([b""]))["valid"].numpy().tolist() == [False]


def test_evaluate_exports_what_it_scores_with_rounded_weights(here, test_split, capsys):
    options = ["--export", "saved_models/rounded", "--export_options.precision", "int8"]
    evaluate.main([str(MODEL), "--nmi", "false", *options, "--export_gallery", "--export_classes"])
    stated = read_metadata(pathlib.Path("saved_models/rounded/1"))
    exact = read_metadata(MODEL / "1")
    assert stated["precision"] == "int8"
    assert stated["licence"] == "CC-BY-4.0"
    assert stated["scores"] == exact["scores"]
    images, labels = test_split.images, test_split.labels
    rows = embeddings_of("saved_models/rounded/1", images)
    recalls = {
        "float32": recall_at_k(embeddings_of(MODEL / "1", images), labels, k=1)[1],
        "int8": recall_at_k(rows, labels, k=1)[1],
    }
    printed = capsys.readouterr().out
    for name, of_precision in stated["precision_scores"].items():
        assert of_precision["recall@1"] == pytest.approx(recalls[name], abs=2e-3)
        assert f"{name:>7}: recall@1 {of_precision['recall@1']:.4f}, " in printed
    assert stated["precision_scores"]["float32"]["megabytes"] == megabytes(MODEL / "1")
    assert list(stated["precision_scores"]) == ["float32", "int8"]

    content = tf.io.encode_png(images[7])[None]
    served = signatures_of("saved_models/rounded/1")
    found = served["neighbours"](image_bytes=content)
    assert found["ids"][0, 0].numpy() == b"7"
    distances = np.linalg.norm(rows - rows[7], axis=1)
    np.testing.assert_allclose(found["distances"][0], np.sort(distances)[:5], atol=1e-4)
    assert found["classes"][0, 0].numpy().decode() == test_split.class_names[labels[7]]
    means = np.stack([rows[labels == label].mean(axis=0) for label in np.unique(labels)])
    found = served["classify"](image_bytes=content)
    distances = np.linalg.norm(means - rows[7], axis=1)
    np.testing.assert_allclose(found["distances"][0], np.sort(distances), atol=1e-4)
    nearest = test_split.class_names[np.unique(labels)[distances.argmin()]]
    assert found["classes"][0, 0].numpy().decode() == nearest


def test_evaluate_exports_how_it_decides_of_classes_and_none(here, monkeypatch):
    digits = pipelines.load("digits")
    few = dataclasses.replace(digits, train=digits.train.subset(slice(None, None, 4)))
    monkeypatch.setattr(pipelines, "load", lambda *_, **__: few)
    options = ["--export", "saved_models/decides", "--draws", "1", "--false_alarm_rate", "0.1"]
    evaluate.main(["open_set", str(MODEL), "--split", "all", *options, "--export_gallery"])
    version = pathlib.Path("saved_models/decides/1")
    split = pipelines.join_splits([few.train, few.test])
    rows = embeddings_of(version, split.images)
    decision = open_set_decision(rows, split.labels, split.names, false_alarm_rate=0.1)
    stated = read_metadata(version)["decision"]
    assert stated["threshold"] == pytest.approx(decision.threshold, abs=1e-5)
    assert (stated["method"], stated["classes"]) == (decision.rule.method, split.names)
    contents = tf.stack([tf.io.encode_png(image) for image in split.images[:9]])
    expected = decision(rows[:9])
    for name in ("classify", "neighbours"):
        found = signatures_of(version)[name](image_bytes=contents)
        np.testing.assert_allclose(found["probability"], expected["probability"], atol=1e-4)
        assert found["known"].numpy().tolist() == expected["known"].tolist()
        assert found["class_id"].numpy().tolist() == expected["class_id"].tolist()


def test_an_export_again_has_the_classes_and_images_of_folders(here, test_split, tmp_path, capsys):
    for row in range(12):
        file = tmp_path / "photos" / f"digit {test_split.labels[row]}" / f"{row}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(test_split.images[row, :, :, 0]).save(file)
    folder = str(tmp_path / "photos")
    export.main(["runs/small", "--classes", folder, "--gallery", folder, "--top", "3"])
    stated = read_metadata(MODEL / "2")
    assert stated["top"] == {"classify": 3, "neighbours": 3}
    assert stated["on_bad_image"] == "nan"
    content = tf.io.encode_png(test_split.images[5])[None]
    found = signatures_of(MODEL / "2")["neighbours"](image_bytes=content)
    label = test_split.labels[5]
    assert found["ids"][0, 0].numpy() == b"digit %d/5.png" % label
    assert found["distances"][0, 0].numpy() == pytest.approx(0, abs=1e-5)
    names = signatures_of(MODEL / "2")["classify"](image_bytes=content)["classes"][0].numpy()
    assert len(names) == 3
    assert all(name.startswith(b"digit ") for name in names)
    capsys.readouterr()
    with pytest.warns(UserWarning, match=r"without classify and neighbours of .*small/2"):
        export.main(["saved_models/small"])
    printed = capsys.readouterr().out
    assert printed.startswith(f"{MODEL}/3: ")
    assert printed.count(" MB\n") == 2
    first, again = (embeddings_of(MODEL / version, test_split.images[:20]) for version in "13")
    np.testing.assert_allclose(first, again, atol=1e-6)
    stated, expected = (read_metadata(MODEL / version) for version in "31")
    assert stated.pop("fingerprint") != expected.pop("fingerprint")
    assert stated == expected


def test_an_export_again_may_change_what_the_run_said(here, monkeypatch, capsys):
    monkeypatch.setattr(runs, "score_rounded", lambda *_: pytest.fail("scored"))
    options = ["--precision", "float16", "--licence", "MIT", "--on_bad_image", "error"]
    export.main(["runs/small", *options, "--score", "false"])
    assert capsys.readouterr().out.startswith("saved_models/small_float16/1: ")
    stated = read_metadata(pathlib.Path("saved_models/small_float16/1"))
    assert "precision_scores" not in stated
    expected = {"precision": "float16", "licence": "MIT", "on_bad_image": "error"}
    assert expected.items() <= stated.items()
    images = pipelines.load("digits").test.images[:20]
    rounded = embeddings_of("saved_models/small_float16/1", images)
    np.testing.assert_allclose(rounded, embeddings_of(MODEL / "1", images), atol=5e-3)


def test_an_export_again_goes_on_without_the_images_of_the_run(here, monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError("there is no folder photos")

    monkeypatch.setattr(pipelines, "load", missing)
    with pytest.warns(UserWarning, match="int8 loses is not scored: there is no folder photos"):
        export.main(["runs/small", "--precision", "int8", "--out", "without_images"])
    assert "precision_scores" not in read_metadata(pathlib.Path("without_images/1"))


def test_an_earlier_export_gets_files_for_other_runtimes(here, test_split, monkeypatch, capsys):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tf2onnx")
    recalls = iter([0.5, 0.495, 0.45])  # of the model, its rounded SavedModel and ONNX file
    monkeypatch.setattr(runs.run_export, "recall_of", lambda rows, images: next(recalls))
    version = pathlib.Path("saved_models/runtimes/1")
    options = ["--format", "onnx", "--precision", "int8", "--out", str(version.parent)]
    with pytest.warns(UserWarning, match="recall@1 of onnx is 5.0 points below that of float32"):
        export.main([str(MODEL), *options])
    stated, printed = read_metadata(version), capsys.readouterr().out
    assert (stated["format"], stated["on_bad_image"]) == ("onnx", "nan")
    assert list(stated["precision_scores"]) == ["float32", "int8", "onnx"]
    assert "    onnx: recall@1 0.4500, " in printed
    assert f"{version}/model.onnx: " in printed
    found = load_network(version / "model.onnx")(images=test_split.images[:9])["embedding"]
    np.testing.assert_allclose(found, embeddings_of(version, test_split.images[:9]), atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "tflite"], "`format` must be one of 'saved_model', 'onnx', 'litert', 'open"),
        (["--classes", "texts"], "is not a JPEG, PNG, GIF, BMP or WebP"),
        (["--gallery", "missing"], "a folder must have sub-folders of images, one per class"),
    ],
)
def test_export_rejects_what_it_cannot_do(arguments, message, here):
    text = pathlib.Path("texts/a/x.png")
    text.parent.mkdir(parents=True, exist_ok=True)
    text.write_text("text")
    before = sorted(pathlib.Path("saved_models").rglob("*.pb"))
    assert message in programs.run(export.main, "runs/small", *arguments, cwd=".").sentence
    assert sorted(pathlib.Path("saved_models").rglob("*.pb")) == before


def test_export_rejects_what_is_no_run():
    assert "error: no SavedModel at /: " in programs.run(export.main, "/", cwd=".").sentence


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--export_gallery"], "`export_gallery` is an option of `export`"),
        (["--export", "x", "--mirror"], "`mirror`"),
        (["--export", "x", "--task", "ncm"], "`export` is an option of the task retrieval"),
        (["--export", "x", "--export_options.top", "3"], "`export_options` has no option 'top'"),
        (["--export", "other"], "is of another run"),
    ],
)
def test_evaluate_rejects_to_export_what_it_does_not_score(arguments, message, here):
    other = pathlib.Path("other/1")
    other.mkdir(parents=True, exist_ok=True)
    (other / "saved_model.pb").touch()
    assert message in programs.run(evaluate.main, str(MODEL), *arguments, cwd=".").sentence
    assert not pathlib.Path("x").exists()


def test_evaluate_rejects_a_large_gallery_before_it_embeds(here, monkeypatch, capsys):
    monkeypatch.setattr("tfdml.serving.nearest.MOST_ROWS", 9)
    monkeypatch.setattr("tfdml.runs.scoring.embed", lambda *_: pytest.fail("embedded"))
    with pytest.raises(SystemExit, match="2"):
        evaluate.main([str(MODEL), "--export", "x", "--export_gallery"])
    expected = "a gallery has from 1 to 9 rows; use an index for more. Received: rows="
    assert expected in capsys.readouterr().err
    assert not pathlib.Path("x").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--export_options.precision", "int8"], "precision='int8'"),
        (["--export_options.licens", "MIT"], "no option 'licens'. Did you mean 'licence'?"),
    ],
)
def test_train_rejects_wrong_options_before_it_trains(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in programs.run(train.main, *SMALL, *options, cwd=".").sentence
    assert not list(tmp_path.iterdir())
