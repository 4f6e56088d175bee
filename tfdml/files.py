"""Files that are replaced in one step."""

import contextlib
import os


@contextlib.contextmanager
def replacing(path, unfinished=None):
    """A path to write to, which takes the place of another when the block ends well.

    A crash leaves the file that was there or the new one, never a half. An error of the system that
    names no file, such as that of a full disk, gets the name of this one.

    Args:
        path: `pathlib.Path` of the file, there or not.
        unfinished: That to write to, in the same folder; `path` with `.unfinished` behind if None.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "scores.txt")
        >>> with replacing(path) as unfinished:
        ...     _ = unfinished.write_text("0.5")
        >>> path.read_text(), [file.name for file in path.parent.iterdir()]
        ('0.5', ['scores.txt'])
    """
    unfinished = unfinished or path.with_name(f"{path.name}.unfinished")
    try:
        with naming(path):
            yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path):
    """Adds the path of a file or folder to an error of the system that names none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise
