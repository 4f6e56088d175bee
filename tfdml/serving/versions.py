"""The numbered versions of a served model: folders 1, 2, ... of one folder, each a SavedModel."""

import contextlib
import os
import pathlib
import shutil
import tempfile

from tfdml.files import naming

try:
    import fcntl
except ImportError:  # Windows, where nothing is swept up
    fcntl = None


def versions_of(folder):
    """The versions in a folder, by their number: {number: path}."""
    found = folder.glob("[0-9]*")
    return {int(p.name): p for p in found if p.name.isdigit() and (p / "saved_model.pb").is_file()}


def newest_version(folder):
    """The version of the highest number.

    Raises:
        FileNotFoundError: If there is none.
    """
    versions = versions_of(folder)
    if not versions:
        raise FileNotFoundError(
            f"no SavedModel at {folder}: expected saved_model.pb or folders named 1, 2, ... there"
        )
    return versions[max(versions)]


def megabytes(version):
    """Size of all files of a version, in MB."""
    return sum(file.stat().st_size for file in version.rglob("*") if file.is_file()) / 1e6


def check_new(path):
    """Raises a FileExistsError if there is such a version."""
    if path.exists():
        raise FileExistsError(f"{path} exists. A version is never overwritten: choose a new one.")


@contextlib.contextmanager
def new_version(path):
    """A hidden folder to fill, which becomes the version when the block ends well.

    The version appears whole or not at all, so a server that watches its folder never sees half of
    one. What an export that was killed has left is swept up by the next one of this version; of
    several at once the first to end becomes it.

    Args:
        path: Path of the version's folder, whose name is a number; must not exist.

    Raises:
        FileExistsError: If it exists, now or when the block ends.
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
    """Locks a folder as long as the process lives; gives whether it could."""
    if fcntl is None:
        yield False
        return
    try:
        opened = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:  # it has just become a version
        yield False
        return
    try:
        yield _locked(opened)
    finally:
        os.close(opened)


def _locked(opened):
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process has it, or the file system knows no locks
        return False
    return True
