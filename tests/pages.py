"""README and the pages of docs/: their code blocks run in order, in a folder with `photos/`.

Blocks of Python share the names of their page. Of shell blocks, this repository's programs run in
this process and other commands in bash; only environments are not made. A block with a title, such
as ```csv title="list.csv"```, is written to that file. So that a page runs in seconds and offline,
trainings take two steps, of digits in place of glyphs, networks of commands are small, all start at
random, indexes have four cells, and a server of models is the protocol test server. A comment
before a block, `<!-- not run: REASON -->`, excepts it; below the title of a page, all its blocks.
"""

import contextlib
import dataclasses
import importlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import threading

import programs
import protocol_server
from small_runs import write_images

ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^>]+) -->\n+)?"
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<code>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)
NOT_RUN = "<!-- not run: "
SERVER = "docker compose -f serving/compose.yaml"
MODULES = ("tfdml", "pipelines")
INSTALLED = {"tfdml-train": "train.py", "tfdml-evaluate": "evaluate.py"}
ENVIRONMENT = ("python3 -m venv", ". .venv/bin/activate", "pip install ")
SMALLER = dict.fromkeys(
    (" --backbone mobilenet_v2", " --weights imagenet", ', weights="imagenet"'), ""
) | {"IVF4096": "IVF4"}
TWO_STEPS = ["--steps", "2", "--checkpoint_every", "1"]
FILES = ("a.png", "b.png", "photo.jpg", "query.png")
FURTHER = ["--steps", "4"]
PHOTOS = {f"class_{i}": 6 for i in range(16)}


@dataclasses.dataclass(frozen=True)
class Block:
    """A code block: its place, its language, and the reason if it does not run."""

    line: int
    language: str
    title: str | None
    code: str
    reason: str | None


def pages():
    """Paths of README and all pages of the site, relative to the repository."""
    return [page.relative_to(ROOT) for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]]


def blocks(page):
    """The `Block`s of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    whole = re.match(rf"# .+\n\n{NOT_RUN}(.+) -->", text)
    return [
        Block(
            text[: found.start("code")].count("\n"),
            found["language"],
            found["title"],
            found["code"],
            found["reason"] or (whole[1] if whole else None),
        )
        for found in BLOCK.finditer(text)
    ]


def commands(code):
    """The commands of a shell block, without comments, one line each."""
    lines = code.replace("\\\n", " ").splitlines()
    return [command for command in (_uncommented(line) for line in lines) if command]


def _uncommented(line):
    return re.split(r"(?:^|\s+)#", line, maxsplit=1)[0].strip()


class Page(contextlib.ExitStack):
    """Runs the blocks of a page in a folder."""

    def __init__(self, page, folder):
        super().__init__()
        self.page, self.folder, self.names, self.addresses = page, folder, {}, {}
        write_images(folder / "photos", PHOTOS)
        for number, name in enumerate(FILES):
            shutil.copy(folder / "photos" / f"class_{number}" / "0.png", folder / name)
        shutil.copytree(ROOT / "serving", folder / "serving")

    def run(self, block):
        code = block.code
        for text, small in SMALLER.items():
            code = code.replace(text, small)
        if block.title is not None:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code, encoding="utf-8")
        elif block.language == "python":
            self._run_python(self._addressed(code), block.line)
        elif block.language == "bash":
            for command in commands(code):
                self._run_command(self._addressed(command))

    def _run_python(self, code, line):
        exec(compile("\n" * line + code, str(self.page), "exec"), self.names)

    def _addressed(self, code):
        for named, address in self.addresses.items():
            code = code.replace(named, address)
        return code

    def _run_command(self, command):
        if command.startswith(ENVIRONMENT):
            for part in command.split(" && ")[1:]:
                self._run_command(part)
        elif command.startswith(SERVER):
            self._serve()
        elif command.startswith("python -m tfdml.search "):
            self._search(command)
        elif command.split()[0] in INSTALLED:
            name, *arguments = shlex.split(command)
            self._run_program(INSTALLED[name], *arguments)
        elif command.startswith("python "):
            self._run_program(*shlex.split(command)[1:])
        else:
            subprocess.run(["bash", "-euc", command], cwd=self.folder, check=True)

    def _run_program(self, name, *arguments):
        arguments = list(arguments)
        if name == "-m":
            name = arguments.pop(0)
            assert name.split(".")[0] in MODULES, f"no module of this repository: {name}"
        if name == "train.py" and "--help" not in arguments:
            steps = FURTHER if "--resume" in arguments else TWO_STEPS
            arguments += [*_on_digits(arguments), *steps]
        if name == "tfdml.client" and "--server" not in arguments:
            arguments += ["--server", f"grpc://{self.addresses['localhost:8500']}"]
        done = programs.run(main_of(name), *arguments, cwd=self.folder)
        assert done.code == 0, f"{name} {shlex.join(arguments)}\n{done.out}{done.err}"

    def _serve(self):
        """Starts the protocol test server with the models of `serving/models.config`."""
        text = (self.folder / "serving" / "models.config").read_text()
        config = text.replace('"/models/', f'"{self.folder}/saved_models/')
        ports = self.enter_context(protocol_server.serving(config))
        self.addresses |= {
            "localhost:8500": f"127.0.0.1:{ports.grpc}",
            "localhost:8501": f"127.0.0.1:{ports.rest}",
        }

    def _search(self, command):
        """Starts a search in a thread, on a free port."""
        from tfdml.search import __main__ as search
        from tfdml.search import server

        started, serve = threading.Event(), server.serve

        def served(application, **options):
            listening = serve(application, **options)
            port = listening.effective_port
            self.addresses["127.0.0.1:8000"] = f"127.0.0.1:{port}"
            thread = threading.Thread(target=listening.run, daemon=True)
            thread.start()
            self.callback(thread.join, 10)
            self.callback(listening.close)
            started.set()
            return type("Started", (), {"effective_port": port, "run": lambda self: None})()

        server.serve = served
        try:
            words = [*shlex.split(command)[3:], "--port", "0"]
            done = programs.run(search.main, *words, cwd=self.folder)
            assert done.code == 0, done.err
            assert started.is_set()
        finally:
            server.serve = serve


def _on_digits(arguments):
    """Arguments that train on small images in place of the default ones, under the same name."""
    if "--dataset" in arguments or "--resume" in arguments:
        return []
    loss = arguments[arguments.index("--loss") + 1]
    named = [] if "--run" in arguments else ["--run", f"glyphs_{loss}"]
    return ["--dataset", "digits", *named]


def main_of(name):
    """The `main` of a program, a benchmark or a module, such as `tfdml.client`."""
    name = name.removesuffix(".py").replace("/", ".")
    module = importlib.import_module(name)
    return (module if hasattr(module, "main") else importlib.import_module(f"{name}.__main__")).main


def run_page(page, folder):
    """Runs all blocks of a page in a folder, as the current one; returns their names."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        with Page(page, folder) as running_page:
            for block in blocks(page):
                if block.reason is None:
                    running_page.run(block)
            return running_page.names
    finally:
        os.chdir(before)
