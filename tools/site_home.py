"""Hook of MkDocs: the README is the first page of the site."""

import pathlib

from mkdocs.structure.files import File

README = pathlib.Path(__file__).parents[1] / "README.md"


def on_files(files, config):
    text = README.read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files
