"""The numbered versions of a served model: sub-folders 1, 2, ..., each a SavedModel."""

import contextlib
import os
import pathlib
import shutil
import tempfile

from tfdml.files import fcntl, naming


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
    """Size of all files of a version, in MB."""
    return sum(file.stat().st_size for file in version.rglob("*") if file.is_file()) / 1e6


def check_new(path):
    """Raises a FileExistsError if there is such a version."""
    if path.exists():
        raise FileExistsError(f"{path} exists. A version is never overwritten: choose a new one.")


@contextlib.contextmanager
def new_version(path):
    """Yields a hidden folder, which becomes the version at `path` if the block succeeds.

    The version appears whole or not at all, so a server that watches its folder never sees half of
    one. The next export of this version deletes what a killed one left; of several at once, the
    first to finish becomes the version, the others raise a FileExistsError.
    """
    check_new(path)
    parent_is_new = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".unfinished-{path.name}-"
    for other in path.parent.glob(f"{prefix}*"):
        with _alone(other) as was_killed:
            if was_killed:
                shutil.rmtree(other)
    unfinished = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=path.parent))
    try:
        with _alone(unfinished):
            with naming(path):
                yield unfinished
            unfinished.chmod(0o755)
            check_new(path)
            os.rename(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        if parent_is_new and not any(path.parent.iterdir()):
            path.parent.rmdir()
        raise


@contextlib.contextmanager
def _alone(folder):
    """Locks a folder within the block, at most while the process lives; yields whether it could."""
    with contextlib.ExitStack() as closed:
        alone = False
        with contextlib.suppress(OSError):  # locked, renamed meanwhile, or no locks there
            opened = os.open(folder, os.O_RDONLY)
            closed.callback(os.close, opened)
            if fcntl is not None:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alone = True
        yield alone
