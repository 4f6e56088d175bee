"""The structure that the design promises, read from the source."""

import ast
import importlib
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
# Each part of tfdml with the parts that it may import.
BELOW = {
    "checks": set(),
    "files": set(),
    "decoding": set(),
    "pairwise": {"checks"},
    "command_line": {"checks", "files"},
    "evaluation_settings": {"checks"},
    "recipes": {"checks"},
    "optimizers": {"checks"},
    "quadruplets": {"pairwise"},
    "losses": {"checks", "pairwise", "quadruplets", "layers"},
    "layers": {"checks", "pairwise"},
    "evaluation": {"checks", "files", "pairwise"},
    "models": {"checks", "pairwise", "losses", "layers", "evaluation"},
    "callbacks": {"checks", "files", "pairwise", "losses", "layers", "evaluation"},
    "serving": {
        "checks",
        "command_line",
        "decoding",
        "files",
        "pairwise",
        "losses",
        "layers",
        "evaluation",
        "models",
    },
    "registration": {"losses"},
    "__init__": {"registration"},
}


def imported(path):
    """Dotted names of all that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(package):
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", modules("tfdml"), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    part = path.relative_to(ROOT / "tfdml").parts[0].removesuffix(".py")
    for name in imported(path):
        if name.split(".")[0] == "tfdml" and "." in name:  # the package itself: `tfdml.register`
            target = name.split(".")[1]
            assert target == part or target in BELOW[part], f"{part} imports {name}"


def test_pipelines_and_tfdml_share_the_decoding_alone():
    for package, other in (("pipelines", "tfdml"), ("tfdml", "pipelines")):
        for path in modules(package):
            known = {name for name in imported(path) if name.split(".")[0] == other}
            assert all(name.startswith("tfdml.decoding.") for name in known), path


def test_every_loss_has_its_file_and_one_line_in_the_table():
    from tfdml import losses

    files = {path.stem for path in (ROOT / "tfdml" / "losses").glob("*.py")} - {"__init__", "base"}
    table = [*losses.LOSSES.values(), *losses.REGULARIZERS.values()]
    assert files == {module for module, _, _ in table}
    for _, class_name, _ in table:
        assert issubclass(getattr(losses, class_name), losses.MetricLoss)


def test_losses_are_written_in_keras_ops_only():
    words = [ROOT / "tfdml" / name for name in ("pairwise.py", "quadruplets.py")]
    for path in [*(ROOT / "tfdml" / "losses").glob("*.py"), *words]:
        roots = {name.split(".")[0] for name in imported(path)}
        allowed = {"keras", "numpy", "tfdml", "importlib", "inspect", "math", "types", "typing"}
        # The base asks TensorFlow for the number of replicas, when that is the backend.
        assert roots <= allowed | ({"tensorflow"} if path.name == "base.py" else set()), path


@pytest.mark.parametrize("name", ["pipelines", "tfdml", "tfdml.losses", "tfdml.models"])
def test_dir_lists_the_public_names(name):
    program = f"import importlib; m = importlib.import_module({name!r}); print(*dir(m))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.split() == sorted(importlib.import_module(name).__all__)


def test_no_file_is_called_utils():
    named = {path.name for package in ("tfdml", "pipelines") for path in modules(package)}
    assert not named & {"utils.py", "helpers.py", "common.py", "misc.py"}
