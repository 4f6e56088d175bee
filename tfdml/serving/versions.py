"""The numbered versions of a served model: sub-folders 1, 2, ..., each a SavedModel."""

import contextlib
import pathlib
import tempfile

from tfdml.files import naming
from tfdml.serving.options import FORMATS


def versions_of(folder):
    """The versions in a folder, by their number: {number: path}."""
    found = folder.glob("[0-9]*")
    return {int(p.name): p for p in found if p.name.isdigit() and (p / "saved_model.pb").is_file()}


def next_version(folder):
    """The path of the version after those in a folder."""
    return folder / str(1 + max(versions_of(folder), default=0))


def newest_version(folder):
    """The version with the highest number; a FileNotFoundError if there is none."""
    versions = versions_of(folder)
    if not versions:
        expected = "expected saved_model.pb or folders named 1, 2, ... there"
        raise FileNotFoundError(f"no SavedModel at {folder}: {expected}")
    return versions[max(versions)]


def name_of(version):
    """The name of a version: `NAME/1` if it is a number in the folder of a model."""
    version = version.resolve()
    return f"{version.parent.name}/{version.name}" if version.name.isdigit() else version.name


def megabytes(version):
    """Size of a SavedModel, in MB, without the files of other runtimes beside it."""
    others = [".bin", *(suffix for suffix, _ in FORMATS.values())]
    files = [file for file in version.rglob("*") if file.is_file() and file.suffix not in others]
    return sum(file.stat().st_size for file in files) / 1e6


def check_new(path):
    """Raises a FileExistsError if there is such a version."""
    if path.exists():
        raise FileExistsError(f"{path} exists. A version is never overwritten: choose a new one.")


@contextlib.contextmanager
def new_version(path):
    """Yields a hidden folder, which becomes the version at `path` if the block succeeds.

    The version appears whole or not at all, so a server that watches its folder never sees half of
    one. Of several exports at once the first to finish becomes the version, the others raise a
    FileExistsError.
    """
    check_new(path)
    parent_is_new = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=path.parent) as hidden:
            unfinished = pathlib.Path(hidden, path.name)
            unfinished.mkdir()
            with naming(path):
                yield unfinished
            check_new(path)
            unfinished.rename(path)
    except BaseException:
        if parent_is_new and not any(path.parent.iterdir()):
            path.parent.rmdir()
        raise
