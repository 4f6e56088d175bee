"""evaluate.py with `--embeddings`: of a model, and made by anything."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from mean_colours import rejection, saved_model, scores
from PIL import Image

from tfdml.evaluation import (
    few_shot_accuracies,
    load_queries,
    open_set_evaluation,
    retrieval_scores,
)
from tfdml.programs import evaluate
from tfdml.runs import scoring

LABELS = np.repeat(np.arange(10), 3)
ROWS = np.random.default_rng(0).normal(size=(10, 4))[LABELS].astype(np.float32)
ROWS += np.random.default_rng(1).normal(size=(30, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    """The photos of a model and its version."""
    return saved_model(tmp_path_factory.mktemp("stored"))


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def content_of(name):
    return json.loads(pathlib.Path("runs", name).read_text())


def test_embeddings_of_a_model_are_written_once_and_read_by_every_task(colours, monkeypatch):
    _, version = colours
    stored = ["--embeddings", "x.npz"]
    direct = scores(version, name="evaluation")
    assert scores(version, *stored, name="evaluation")["scores"] == direct["scores"]
    levels = scores(version, "--levels", 1, name="evaluation_levels_1")
    ncm = scores(version, "--task", "ncm", name="evaluation_ncm")
    monkeypatch.setattr(scoring, "embed", lambda *_: pytest.fail("embedded"))
    assert scores(version, *stored, name="evaluation") == {**direct, "embeddings": "x.npz"}
    found = scores(version, *stored, "--levels", 1, name="evaluation_levels_1")
    assert (found["scores"], found["scored_levels"]) == (levels["scores"], 1)
    assert (
        scores(version, "--task", "ncm", *stored, name="evaluation_ncm")["scores"] == ncm["scores"]
    )
    evaluate.main(["--embeddings", "x.npz", "--nmi=false"])  # without the model, too
    assert content_of("x/evaluation.json")["scores"]["map"] == direct["scores"]["map"]


def test_embeddings_of_others_are_named_and_kept(colours, capsys):
    photos, version = colours
    scores(version, "--embeddings", "x.npz", "--mirror", "--nmi=false", name="evaluation_mirror")
    before = pathlib.Path("x.npz").read_bytes()
    np.savez("foreign.npz", embeddings=ROWS, labels=LABELS)
    for file, options, differing in (
        ("x.npz", ["--mirror", "--split", "all"], "['split', 'classes', 'content']"),
        ("x.npz", [], "['mirror']"),
        ("x.npz", ["--mirror", "--crops", "5"], "['crops']"),
        ("foreign.npz", [], "['model', 'dataset', "),
    ):
        message = rejection(version, "--embeddings", file, *options)
        assert f"{file} must have the embeddings of this model, images and options" in message
        assert f"differing={differing}" in message
    _, other = saved_model(photos.parent / "other", photos, scale=2.0)
    assert "differing=['model']" in rejection(other, "--mirror", "--embeddings", "x.npz")
    assert pathlib.Path("x.npz").read_bytes() == before


def test_embeddings_made_by_anything_are_scored():
    np.savez("x.npz", embeddings=ROWS, labels=LABELS)
    evaluate.main(["--embeddings", "x.npz", "--false_match_rate", "0.1"])
    content = content_of("x/evaluation.json")
    expected = retrieval_scores(ROWS, LABELS)
    assert {name: content["scores"][name] for name in expected} == pytest.approx(expected)
    assert {"nmi", "ami"} < set(content["scores"])
    assert "auc" in content["verification"]
    assert (content["version"], content["dataset"]) == (None, None)
    evaluate.main(["ncm", "--embeddings", "x.npz", "--k", "1"])
    expected = np.mean(few_shot_accuracies(ROWS, LABELS, k=1)[1])
    assert content_of("x/evaluation_ncm.json")["scores"]["top1"] == pytest.approx(expected)


def test_known_classes_or_none_are_decided_by_rules_of_other_classes(capsys):
    np.savez("x.npz", embeddings=ROWS, labels=LABELS)
    options = ["--draws", "3", "--seed", "1", "--false_alarm_rate", "0.1", "--report", "page"]
    evaluate.main(["open_set", "--embeddings", "x.npz", *options])
    content = content_of("x/evaluation_open_set_draws_3_seed_1_false_alarm_rate_0.1.json")
    kind = {"draws": 3, "seed": 1, "false_alarm_rate": 0.1}
    expected = json.loads(json.dumps(open_set_evaluation(ROWS, LABELS, **kind)))
    assert {name: content[name] for name in expected} == expected
    printed = capsys.readouterr().out
    assert "four fifths of the classes known by half of their images" in printed
    assert "In brackets: 95 % jackknife intervals over classes." in printed
    for row, found in {**expected["methods"], **expected["rules"]}.items():
        assert re.search(rf"^{row} .*  {found['dir']:.4f}", printed, re.MULTILINE)
    assert Image.open("page/reliability.png").size == (500, 500)


def test_an_audit_writes_a_table_that_a_further_score_takes(colours, capsys):
    photos, version = colours
    shutil.copytree(photos, "photos")
    first, *_, other = sorted(pathlib.Path("photos").iterdir())
    image = sorted(first.iterdir())[0]
    shutil.copy(image, other / "leak.png")
    options = ["--dataset", "folder", "--data_dir", "photos", "--split", "all"]
    evaluate.main(["audit", str(version), *options[:4], "--report", "page", "--out", "audit.json"])
    lines = pathlib.Path("audit.csv").read_text().splitlines()
    assert lines[:2] == [
        "path,finding,score,suggestion,other",
        f"{image.relative_to('photos')},leak,1.0000,exclude,{other.name}/leak.png",
    ]
    content = json.loads(pathlib.Path("audit.json").read_text())
    counts = content["findings"]
    assert sum(counts.values()) == len(lines) - 1
    assert f"leak  {counts['leak']}" in capsys.readouterr().out
    page = pathlib.Path("page/index.html").read_text()
    assert page.count("<img") >= 2
    assert f"{other.name}/leak.png" in page
    pathlib.Path("leak.csv").write_text("\n".join(lines[:2]))
    images = len(list(pathlib.Path("photos").glob("*/*.png")))
    evaluate.main([str(version), *options, "--exclude", "leak.csv", "--out", "rest.json"])
    assert f"on {images - 1} images" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        evaluate.main(["audit", "--embeddings", "x.npz", "--k", "1"])


def test_stored_queries_search_among_the_other_rows(capsys):
    queries, names = np.arange(30) % 3 == 0, np.array([f"bird {label}" for label in LABELS])
    ids = np.array([f"{row}.png" for row in range(30)])
    np.savez("x.npz", embeddings=ROWS, labels=names, queries=queries, ids=ids)
    evaluate.main(["--embeddings", "x.npz", "--nmi=false"])
    gallery = {"gallery_embeddings": ROWS[~queries], "gallery_labels": LABELS[~queries]}
    expected = retrieval_scores(ROWS[queries], LABELS[queries], **gallery)
    content = content_of("x/evaluation.json")
    assert content["scores"] == pytest.approx(expected)
    assert content["images"] == {"queries": 10, "gallery": 20}
    assert load_queries("runs/x/evaluation_queries.npz").ids.tolist() == ids[queries].tolist()
    tree = "".join(f"bird {n},{'ab'[n % 2]}\n" for n in range(10))
    pathlib.Path("tree.csv").write_text(f"class,parent\n{tree}a,all\nb,all\n")
    placed = ["--hierarchy", "tree.csv", "--unseen_share", "0.2"]
    evaluate.main(["zero_shot", "--embeddings", "x.npz", *placed])
    assert content_of("x/evaluation_zero_shot_tree_unseen_0.2.json")["classes"]["unseen"] == 2
    assert "x.npz on 6 images of 2 classes" in capsys.readouterr().out


@pytest.mark.usefixtures("without_figures")
def test_a_report_shows_the_images_that_ids_name(colours):
    photos, _ = colours
    paths = sorted(map(str, photos.rglob("*.png")))[:30]
    np.savez("x.npz", embeddings=ROWS[: len(paths)], labels=LABELS[: len(paths)], ids=paths)
    evaluate.main(["--embeddings", "x.npz", "--nmi=false", "--report", "page"])
    assert "<h1>x</h1>" in pathlib.Path("page", "index.html").read_text()
    pathlib.Path("x.npz").unlink()
    np.savez("x.npz", embeddings=ROWS, labels=LABELS)
    message = rejection("--embeddings", "x.npz", "--report", "page")
    assert "`report` needs `ids` in `embeddings` that are paths of images; '0' is none" in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embeddings": np.where(LABELS[:, None] == 1, np.nan, ROWS)}, "not_finite=3, first=3"),
        ({"embeddings": ROWS[:, 0]}, "`embeddings` of x.npz must be floats of shape (n, dim)"),
        ({"embeddings": LABELS[:, None]}, "`embeddings` of x.npz must be floats of shape (n, dim)"),
        ({"labels": LABELS[1:]}, "`labels` of x.npz must be integers or texts, one for each row"),
        ({"labels": LABELS / 2}, "`labels` of x.npz must be integers or texts, one for each row"),
        ({"labels": None}, "x.npz must be a NumPy archive (.npz) with arrays `embeddings` and"),
        ({"queries": LABELS}, "`queries` of x.npz must be booleans, one for each row"),
        ({"queries": LABELS < 99}, "`queries` of x.npz must be true for some rows and false for"),
        ({"ids": LABELS}, "`ids` of x.npz must be texts, one for each row"),
    ],
)
def test_arrays_of_other_kinds_are_rejected(changes, message):
    arrays = {"embeddings": ROWS, "labels": LABELS, **changes}
    np.savez("x.npz", **{name: array for name, array in arrays.items() if array is not None})
    assert message in rejection("--embeddings", "x.npz")


def test_what_is_no_archive_is_rejected():
    np.savez("x.npz", embeddings=ROWS, labels=LABELS)
    whole = pathlib.Path("x.npz").read_bytes()
    for content in (whole[:300], whole[:-30], whole[:200] + b"?" + whole[201:]):
        pathlib.Path("x.npz").write_bytes(content)
        assert "x.npz is damaged" in rejection("--embeddings", "x.npz")
    for content in (b"", b"words"):
        pathlib.Path("x.npz").write_bytes(content)
        assert "x.npz must be a NumPy archive (.npz)" in rejection("--embeddings", "x.npz")
    assert "missing.npz" in rejection("--embeddings", "missing.npz")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a `model`, or a file of `embeddings`"),
        (["--embeddings", "x"], "there is no x: x must be a NumPy archive (.npz) with arrays"),
        (["--embeddings", "x", "--crops", "5"], "`crops` needs a `model`"),
        (["--embeddings", "x", "--dataset", "digits"], "`dataset` needs a `model`"),
        (["--embeddings", "x", "--export", "y"], "`export` needs a `model`"),
        (["--embeddings", "x", "--gallery", "y"], "`gallery` needs a `model`"),
        (["--embeddings", "x", "--rank_by", "similarity"], "`rank_by`, needs a `model`"),
        (["--embeddings", "x", "--rerank", "8"], "`rank_by`, needs a `model`"),
    ],
)
def test_what_needs_a_model_is_rejected(arguments, message):
    assert message in rejection(*arguments)


def test_stored_files_are_scored_and_compared_without_tensorflow():
    np.savez("x.npz", embeddings=ROWS, labels=LABELS)
    np.savez("y.npz", embeddings=ROWS[:, :2], labels=LABELS)
    code = "import sys\nfrom tfdml.programs import evaluate\n"
    for name in "xy":
        code += f"evaluate.main(['--embeddings', '{name}.npz', '--nmi=false'])\n"
    code += "evaluate.main(['compare', 'runs/x', 'runs/y'])\nprint('tensorflow' in sys.modules)"
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "False"
