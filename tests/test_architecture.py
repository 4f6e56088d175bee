"""The structure that the design promises, read from the source."""

import ast
import functools
import importlib
import itertools
import pathlib

from importlinter.cli import lint_imports

ROOT = pathlib.Path(__file__).parents[1]


@functools.cache
def tree(path):
    return ast.parse(path.read_text())


def imported(path):
    """Dotted names of all that a file imports, also inside functions."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(package):
    return sorted((ROOT / package).rglob("*.py"))


def test_imports_are_as_the_contracts_say(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == 0


def test_every_name_of_a_stub_loads():
    stubs = [path for name in ("tfdml", "pipelines") for path in (ROOT / name).rglob("*.pyi")]
    assert len(stubs) >= 6
    for stub in stubs:
        package = importlib.import_module(".".join(stub.relative_to(ROOT).parts[:-1]))
        named = {name.rpartition(".")[2] for name in imported(stub)}
        assert named == set(package.__all__) - {"__version__"}
        assert all(hasattr(package, name) for name in named)
    assert (ROOT / "tfdml" / "py.typed").exists()
    assert (ROOT / "pipelines" / "py.typed").exists()


def test_every_loss_has_its_file_and_one_export():
    from tfdml import losses

    files = {path.stem for path in (ROOT / "tfdml" / "losses").glob("[!_]*.py")}
    files -= {"base", "batch", "index", "proxies", "registry"}
    classes = [
        getattr(losses, name) for name in [*losses.LOSSES.values(), *losses.REGULARIZERS.values()]
    ]
    assert files == {loss.__module__.rpartition(".")[2] for loss in classes}
    assert all(issubclass(loss, losses.MetricLoss) for loss in classes)


PROGRAMS = ["tfdml/**/*.py", "pipelines/*.py", "recipes/*.py", "tools/*.py"]
WITHOUT_TFDML = {"tools/mutants.py"}


def test_every_program_keeps_printing_before_all_else():
    excepted = {ROOT / name for name in WITHOUT_TFDML}
    paths = {path for pattern in PROGRAMS for path in ROOT.glob(pattern)} - excepted
    begun = []
    for path in paths:
        for node in tree(path).body:
            if isinstance(node, ast.FunctionDef) and node.name == "main":
                first = node.body[1 if ast.get_docstring(node) else 0]
                assert ast.unparse(first) == "keep_printing()", path
                begun.append(path)
    assert len(begun) >= 10


def test_texts_are_read_and_written_in_a_stated_encoding():
    folders = ["tfdml", "pipelines", "recipes", "tools", "benchmarks"]
    unstated = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in itertools.chain(*map(modules, folders))
        for call in ast.walk(tree(path))
        if isinstance(call, ast.Call) and is_of_the_locale(call)
    ]
    assert not unstated


def is_of_the_locale(call):
    """Whether a call reads or writes text in an encoding that it does not state."""
    keywords = {keyword.arg for keyword in call.keywords}
    if "encoding" in keywords:
        return False
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    is_method = isinstance(call.func, ast.Attribute)
    if name == "open":
        words = [word.value for word in call.args[:2] if isinstance(word, ast.Constant)]
        modes = [word for word in words if set(str(word)) <= set("rwxabt+")]
        is_text = not any("b" in mode for mode in modes)
        return is_text and (bool(modes) or "newline" in keywords or not is_method)
    least = {"read_text": 1, "write_text": 2}.get(name, 0)
    return (is_method and len(call.args) < least) or "text" in keywords
