"""The wheel: what is in it, and its commands in an environment that has no checkout."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest
from small_runs import SMALL

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ("tfdml", "pipelines")
OTHERS = ("benchmarks", "recipes", "tests", "tools")
ENVIRONMENT = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
pytestmark = pytest.mark.slow


def finished(*command, cwd):
    result = subprocess.run(
        [*map(str, command)], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the checkout, where it leaves files behind."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in (*PACKAGES, *OTHERS):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / "checkout" / name, ignore=ignored)
    for file in (*ROOT.glob("*.py"), *ROOT.glob("*.toml"), ROOT / "README.md", ROOT / "LICENSE"):
        shutil.copy(file, folder / "checkout")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    finished(*pip, "--wheel-dir", folder, "./checkout", cwd=folder)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def commands(wheel, tmp_path_factory):
    """The folder of the commands of an environment that has the wheel and what it needs alone."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    finished(folder / "bin" / "pip", "install", "--quiet", wheel, cwd=folder)
    return folder / "bin"


def test_the_wheel_has_the_files_of_the_packages_and_no_others(wheel):
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    found = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert found == expected
    assert {pathlib.PurePath(name).suffix for name in found} >= {".html", ".css", ".js", ".pyi"}


def test_trains_and_scores_in_an_empty_folder(commands, tmp_path):
    arguments = ["--loss", "lifted", *SMALL, "--steps", "20", "--checkpoint_every", "10"]
    printed = finished(commands / "tfdml-train", *arguments, "--run", "small", cwd=tmp_path)
    assert "recall@1" in printed
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "saved_models"}
    printed = finished(commands / "tfdml-evaluate", "runs/small", "--report", "page", cwd=tmp_path)
    run = tmp_path / "runs" / "small"
    trained = json.loads((run / "scores.json").read_text())["trained"]["recall@1"]
    evaluated = json.loads((run / "evaluation.json").read_text())["scores"]["recall@1"]
    assert evaluated == pytest.approx(trained, abs=5e-3)
    assert f"{evaluated:.4f}" in printed
    assert (tmp_path / "page" / "index.html").is_file()
    more = ["--run", "small", "--resume", "--steps", "30"]
    assert "step 30 of 30" in finished(commands / "tfdml-train", *more, cwd=tmp_path)


def test_the_commands_call_themselves_by_their_names(commands, tmp_path):
    for name in ("tfdml-train", "tfdml-evaluate"):
        assert finished(commands / name, "--help", cwd=tmp_path).startswith(f"usage: {name} ")
    for module in ("tfdml.export", "pipelines.check"):
        finished(commands / "python", "-m", module, "--help", cwd=tmp_path)
    assert not list(tmp_path.iterdir())
