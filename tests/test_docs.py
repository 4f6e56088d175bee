"""Docstrings and README are held to what the code does."""

import dataclasses
import doctest
import importlib
import inspect
import pathlib
import pkgutil
import re

import numpy as np
import pages
import pytest
import tensorflow as tf
import yaml

import pipelines
import tfdml
from tfdml import layers, losses
from tfdml.programs import evaluate
from tfdml.runs.recipe import Recipe
from tfdml.serving.options import FORMATS

ROOT = pathlib.Path(__file__).parents[1]
MODULES = [
    module.name
    for package in (tfdml, pipelines)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


@pytest.mark.parametrize("name", ["tfdml", "pipelines", *MODULES])
def test_examples_run(name):
    if name == "tfdml.scale.ray_engine":
        pytest.importorskip("ray")
    module = importlib.import_module(name)
    public = {name: getattr(of, name) for of in (losses, layers) for name in of.__all__}
    names = {"np": np, **public}
    result = doctest.testmod(module, extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_losses_document_every_option():
    """In the docstring of the class or of one that it inherits from."""
    for class_name in [*losses.LOSSES.values(), *losses.REGULARIZERS.values()]:
        loss = getattr(losses, class_name)
        bases = [each for each in loss.__mro__ if issubclass(each, losses.MetricLoss)]
        texts = [inspect.cleandoc(each.__doc__) for each in bases]
        for section in ("Args:", "Call:", "Raises:", "Source:", "Example:"):
            assert any(section in text for text in texts), (class_name, section)
        own, *inherited = map(documented, texts)
        options = list(inspect.signature(loss).parameters)
        assert own == [option for option in options if option in own], class_name
        assert {*options} <= {*own}.union(*inherited), class_name


def documented(text):
    """The arguments of a docstring."""
    arguments = re.search(r"^Args:\n((?: {4}.*\n)*)", text + "\n", re.MULTILINE)
    items = re.findall(r"^ {4}(\w+(?:, \w+)*):", arguments[1] if arguments else "", re.MULTILINE)
    return [name for item in items for name in item.split(", ")]


def test_formulas_of_the_site_have_the_options_of_the_docstrings():
    path = ROOT / "docs" / "reference" / "formulas.yaml"
    formulas = yaml.safe_load(path.read_text(encoding="utf-8"))
    for class_name in [*losses.LOSSES.values(), *losses.REGULARIZERS.values()]:
        loss = getattr(losses, class_name)
        head = inspect.getdoc(loss).partition("Args:\n")[0]
        plain = re.findall(r"^ {4}.+\n(?:\n*(?: {4}.+\n))*", head, re.MULTILINE)
        options = set(inspect.signature(loss).parameters)
        for text, tex in zip(plain, formulas.get(class_name, []), strict=True):
            in_text, in_tex = (
                options & set(re.findall(r"\w+", each, re.ASCII)) for each in (text, tex)
            )
            assert in_text == in_tex, class_name


def slow_but(*fast):
    """Pages as parameters: those that run in seconds, and others, marked slow."""
    marks = {True: (), False: pytest.mark.slow}
    return [
        pytest.param(page, marks=marks[str(page) in fast], id=str(page))
        for page in pages.pages()
        if any(block.reason is None for block in pages.blocks(page))
    ]


@pytest.mark.parametrize("page", slow_but("docs/tutorials/own_loss.md", "docs/cookbook/data.md"))
def test_blocks_of_a_page_run(page, tmp_path):
    for module in FORMATS.get(page.stem, ("", ()))[1]:
        pytest.importorskip(module)
    names = pages.run_page(page, tmp_path)
    if page.stem in FORMATS:  # a client, which embeds as the served model does
        version = tf.saved_model.load(str(tmp_path / "saved_models" / "glyphs_lifted" / "2"))
        files = [(tmp_path / name).read_bytes() for name in ("a.png", "b.png")]
        expected = version.signatures["serving_default"](image_bytes=tf.constant(files))
        np.testing.assert_allclose(names["rows"], expected["embedding"], atol=1e-3)


def test_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    codes = [block.code for block in pages.blocks("README.md") if block.language == "python"]
    assert codes
    for code in codes:
        exec(compile(code, "README", "exec"), {})


def test_flags_of_commands_exist():
    fields = {
        field.name
        for cls in (Recipe, evaluate.Comparison, *evaluate.TASKS.values())
        for field in dataclasses.fields(cls)
    }
    every = (block for page in pages.pages() for block in pages.blocks(page))
    shell = [line for b in every if b.language == "bash" for line in pages.commands(b.code)]
    programs = tuple(f"{name} " for name in pages.INSTALLED)
    programs += tuple(f"python {script} " for script in pages.INSTALLED.values())
    flags = {
        flag for line in shell if line.startswith(programs) for flag in re.findall(r"--(\w+)", line)
    }
    assert {"resume", "mirror", "rerank"} <= flags, flags
    assert flags <= fields | {"config", "row", "resume", "help", "compare"}, flags - fields


def test_the_reference_has_all_public_names():
    listed = set()
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        listed |= set(re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE))
    packages = (tfdml.losses, tfdml.layers, tfdml.models, tfdml.evaluation, tfdml.serving)
    for package in (*packages, tfdml.client, pipelines):
        names = {
            f"{package.__name__}.{name}"
            for name in package.__all__
            if callable(getattr(package, name)) and name != "EmbeddingModel"
        }
        assert names <= listed, names - listed


@pytest.mark.parametrize("settings", [Recipe, evaluate.Comparison, *evaluate.TASKS.values()])
def test_every_setting_is_documented(settings):
    names = [field.name for field in dataclasses.fields(settings)]
    docs = [inspect.cleandoc(kind.__doc__) for kind in reversed(settings.__mro__[:-1])]
    assert re.findall(r"^    (\w+):", "\n".join(docs), re.MULTILINE) == names
