"""Docstrings and README are held to what the code does."""

import dataclasses
import doctest
import importlib
import inspect
import pathlib
import pkgutil
import re

import numpy as np
import pytest

import evaluate
import pipelines
import tfdml
from tfdml import layers, losses
from tfdml.runs.recipe import Recipe

ROOT = pathlib.Path(__file__).parents[1]
MODULES = [
    module.name
    for package in (tfdml, pipelines)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", ["tfdml", "pipelines", *MODULES])
def test_examples_run(name):
    if name == "tfdml.scale.cluster":
        pytest.importorskip("ray")
    module = importlib.import_module(name)
    public = {name: getattr(of, name) for of in (losses, layers) for name in of.__all__}
    names = {"np": np, **public}
    result = doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_losses_document_every_option():
    for _, class_name, _ in [*losses.LOSSES.values(), *losses.REGULARIZERS.values()]:
        loss = getattr(losses, class_name)
        text = inspect.getdoc(loss)  # Python 3.13 dedents the docstring itself
        for section in ("Args:", "Call:", "Raises:", "Source:", "Example:"):
            assert section in text, class_name
        arguments = re.split("Attributes:|Call:", text.split("Args:")[1])[0]
        documented = re.findall(r"^ {4}(\w+):", arguments, re.MULTILINE)
        assert documented == list(inspect.signature(loss).parameters), class_name


def readme_blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(readme_blocks("python"))))
def test_python_of_the_readme_runs(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(readme_blocks("python")[number], f"README block {number}", "exec"), {})


def test_the_readme_has_python_to_run():
    assert len(readme_blocks("python")) >= 2


def test_flags_in_the_readme_exist():
    fields = {
        field.name
        for cls in (Recipe, evaluate.Comparison, *evaluate.TASKS.values())
        for field in dataclasses.fields(cls)
    }
    commands = re.findall(r"(?:train|evaluate)\.py((?:\\\n|.)*)", "".join(readme_blocks("bash")))
    flags = {flag for command in commands for flag in re.findall(r"--(\w+)", command)}
    assert {"resume", "mirror", "rerank"} <= flags, flags
    assert flags <= fields | {"config", "resume", "help", "compare"}, flags - fields
