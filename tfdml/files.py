"""Files that are replaced in one step."""

import contextlib
import os


@contextlib.contextmanager
def replacing(path, unfinished=None):
    """A path to write to, which takes the place of another when the block ends well.

    A crash leaves the file that was there or the new one, never a half.

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
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
