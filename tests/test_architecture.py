"""The structure that the design promises, read from the source."""

import ast
import importlib
import itertools
import pathlib

ROOT = pathlib.Path(__file__).parents[1]
# Each part of tfdml with the parts that it may import.
BELOW = {
    "checks": set(),
    "files": set(),
    "image_files": set(),
    "image_headers": {"image_files"},
    "decoding": {"image_files", "orientation"},
    "orientation": set(),
    "pairwise": {"checks"},
    "quiet": {"checks"},
    "command_line": {"checks", "files"},
    "progress": set(),
    "optimizers": {"checks"},
    "losses": {"checks", "pairwise", "layers", "evaluation"},
    "layers": {"checks", "pairwise"},
    "evaluation": {"checks", "files", "pairwise", "progress"},
    "models": {"checks", "pairwise", "losses", "layers", "evaluation"},
    "callbacks": {"checks", "files", "progress", "pairwise", "losses", "layers", "evaluation"},
    "serving": {
        "checks",
        "command_line",
        "decoding",
        "files",
        "image_files",
        "progress",
        "quiet",
        "pairwise",
        "losses",
        "layers",
        "evaluation",
        "models",
    },
    "client": {"checks", "command_line", "files", "image_files", "progress", "quiet", "serving"},
    "scale": {
        "checks",
        "command_line",
        "evaluation",
        "files",
        "image_files",
        "progress",
        "quiet",
        "serving",
    },
    "search": {
        "checks",
        "command_line",
        "files",
        "image_files",
        "image_headers",
        "progress",
        "quiet",
        "scale",
        "serving",
    },
    "registration": {"losses"},
    "runs": {
        "checks",
        "files",
        "progress",
        "quiet",
        "command_line",
        "losses",
        "models",
        "evaluation",
        "optimizers",
        "scale",
        "serving",
    },
    "programs": {
        "checks",
        "command_line",
        "files",
        "quiet",
        "callbacks",
        "evaluation",
        "layers",
        "losses",
        "models",
        "runs",
        "serving",
    },
    "experiments": {
        "checks",
        "command_line",
        "files",
        "evaluation",
        "models",
        "runs",
        "programs",
    },
    "experiment": {
        "checks",
        "command_line",
        "experiments",
        "files",
        "quiet",
        "runs",
        "programs",
    },
    "__init__": {"registration"},
}
EXCEPTED = {"serving/export.py"}  # a program, which uses the runs

# What `pipelines` uses of tfdml, so that a served model decodes images as training does.
SHARED = {"checks", "files", "command_line", "progress", "quiet", "decoding"}
SHARED |= {"image_files", "image_headers", "orientation"}


def imported(path):
    """Dotted names of all that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules(package):
    return sorted((ROOT / package).rglob("*.py"))


def test_imports_point_down():
    upward = []
    for path in modules("tfdml"):
        if path.relative_to(ROOT / "tfdml").as_posix() in EXCEPTED:
            continue
        part = path.relative_to(ROOT / "tfdml").parts[0].removesuffix(".py")
        for name in imported(path):
            package, _, inner = name.partition(".")
            target = inner.split(".")[0]  # empty for the package itself: `tfdml.register`
            if package == "tfdml" and target and target not in {part, *BELOW[part]}:
                upward.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not upward


def test_pipelines_and_tfdml_share_tools_alone():
    both = {ROOT / "tfdml" / "runs", ROOT / "tfdml" / "programs"}
    for package, other in (("pipelines", "tfdml"), ("tfdml", "pipelines")):
        for path in modules(package):
            if both & {*path.parents}:
                continue
            known = {name for name in imported(path) if name.split(".")[0] == other}
            assert {name.split(".")[1] for name in known} <= SHARED, path


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
    files -= {"base", "batch", "index", "registry"}
    classes = [
        getattr(losses, name) for name in [*losses.LOSSES.values(), *losses.REGULARIZERS.values()]
    ]
    assert files == {loss.__module__.rpartition(".")[2] for loss in classes}
    assert all(issubclass(loss, losses.MetricLoss) for loss in classes)


def test_losses_are_written_in_keras_ops_only():
    for path in [*(ROOT / "tfdml" / "losses").glob("*.py"), ROOT / "tfdml" / "pairwise.py"]:
        roots = {name.split(".")[0] for name in imported(path)}
        allowed = {"keras", "numpy", "tfdml", "lazy_loader", "collections", "inspect"}
        allowed |= {"dataclasses", "functools", "math", "types", "typing"}
        # With that backend, TensorFlow raises for tensors it must reject.
        allowed |= {"tensorflow"} if path.name == "pairwise.py" else set()
        # The index is read without importing Keras.
        allowed |= {"json", "pathlib"} if path.name == "index.py" else set()
        assert roots <= allowed, path


PROGRAMS = ["tfdml/**/*.py", "pipelines/*.py", "recipes/*.py", "tools/*.py"]
WITHOUT_TFDML = {"tools/mutants.py"}


def test_every_program_keeps_printing_before_all_else():
    from tfdml.scale.__main__ import COMMANDS  # parts of one program

    commands = {f"{name.replace('.', '/')}.py" for name in COMMANDS.values()}
    excepted = {ROOT / name for name in commands | WITHOUT_TFDML}
    paths = {path for pattern in PROGRAMS for path in ROOT.glob(pattern)} - excepted
    begun = []
    for path in paths:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name == "main":
                first = node.body[1 if ast.get_docstring(node) else 0]
                assert ast.unparse(first) == "keep_printing()", path
                begun.append(path)
    assert len(begun) >= 12


def test_texts_are_read_and_written_in_a_stated_encoding():
    folders = ["tfdml", "pipelines", "recipes", "tools", "benchmarks"]
    unstated = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in itertools.chain(*map(modules, folders))
        for call in ast.walk(ast.parse(path.read_text()))
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
