"""Lists the image files of a folder, and rejects paths that lead out of it."""

import os
import pathlib
import warnings
from typing import NamedTuple

from tfdml.search.refusals import RefusedError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")


class Stamp(NamedTuple):
    """Size and modification time of a file, to detect changes."""

    size: int  # bytes
    modified: int  # nanoseconds


def image_files(folder):
    """The image files below a folder, by their names.

    Hidden files and folders and links to folders are ignored; links out of the folder and folders
    that cannot be listed are ignored with a warning.

    Args:
        folder: Its path, resolved.

    Returns:
        {path relative to the folder, with slashes: `Stamp`}, sorted.
    """
    found, outside, closed = {}, [], []
    for parent, folders, names in os.walk(folder, onerror=lambda error: closed.append(error)):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.startswith(".") or not name.lower().endswith(SUFFIXES):
                continue
            path = pathlib.Path(parent, name)
            try:
                inside(folder, path)
                status = path.stat()
            except RefusedError:
                outside.append(path)
                continue
            except OSError:  # deleted meanwhile, or a broken link
                continue
            if path.is_file():
                stamp = Stamp(status.st_size, status.st_mtime_ns)
                found[path.relative_to(folder).as_posix()] = stamp
    if outside:
        warnings.warn(
            f"ignored {len(outside)} links that lead out of {folder}, such as {outside[0]}",
            stacklevel=2,
        )
    for error in closed:
        warnings.warn(f"ignored {error.filename} ({error.strerror})", stacklevel=2)
    return dict(sorted(found.items()))


def inside(folder, path):
    """Resolves a path and checks that it is inside the folder.

    Args:
        folder: Its path, resolved.
        path: A path, absolute or relative to the folder.

    Raises:
        RefusedError: With 404, if it leads elsewhere.
        OSError: If there is no such file.
    """
    real = pathlib.Path(folder, path).resolve(strict=True)
    if not real.is_relative_to(folder):
        raise RefusedError("The image is no longer in the folder of images", status=404)
    return real


def read(folder, name, stamp):
    """The bytes of a file, if it has not changed since it was stamped.

    Args:
        folder: Its path, resolved.
        name: Path relative to the folder.
        stamp: Its `Stamp`.

    Raises:
        RefusedError: With 404, if it left the folder; with 410, if it has changed.
        OSError: If it cannot be read.
    """
    with open(inside(folder, name), "rb") as file:
        status = os.fstat(file.fileno())
        if Stamp(status.st_size, status.st_mtime_ns) != stamp:
            raise RefusedError("The image has changed since it was indexed: refresh", status=410)
        return file.read()
