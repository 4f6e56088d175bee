"""Finds unreadable image files; readable ones are remembered until they change."""

import contextlib
import io
import os
import re
import sqlite3

from PIL import UnidentifiedImageError

from pipelines.records import is_record, read
from tfdml.files import cache_folder
from tfdml.images.image_headers import KINDS, excess_pixels, open_image, read_image
from tfdml.quiet import import_tensorflow, progress
from tfdml.threads import in_order

_NO_MEMORY = (OSError, RuntimeError, sqlite3.Error)  # of an unreadable or missing database


def unreadable(paths):
    """Yields the files that `decode` rejects as they are found: index into `paths`, reason why.

    Decodes every file on all cores, JPEG at an eighth of its size. A readable file is not decoded
    again while its path, size and modification time stay the same: these are kept in
    `images.sqlite` in the folder `tfdml` of `$XDG_CACHE_HOME` or of `~/.cache`.
    """
    stamps = [_stamp(path) for path in paths]
    known = _remembered(stamps)
    unknown = [row for row, stamp in enumerate(stamps) if stamp is None or stamp not in known]
    good = []
    if unknown:  # not in the threads: each would silence the standard error of the others
        import_tensorflow()
    reasons = in_order(_problem, (paths[row] for row in unknown), 1 + (os.cpu_count() or 1))
    try:
        for row in progress("Checking images", unknown):
            if reason := next(reasons):
                yield row, reason
            elif stamps[row]:
                good.append(stamps[row])
    finally:  # keeps what was checked before Ctrl-C
        reasons.close()
        _remember(good)


def _problem(path):
    """Why a file cannot be read; an empty text if it can."""
    import tensorflow as tf  # not needed where all files are remembered

    from tfdml.images.decoding import decode

    try:
        contents = read(path) if is_record(path) else read_image(path)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return error.strerror or str(error)
    with contextlib.suppress(UnidentifiedImageError):  # which `decode` may still read
        if excess := excess_pixels(open_image(io.BytesIO(contents))):
            return f"{len(contents):,} bytes, {excess}"
    try:
        if tf.io.is_jpeg(contents):
            tf.io.decode_jpeg(contents, channels=3, ratio=8)
        else:
            decode(contents, channels=3)
    except (tf.errors.OpError, ValueError) as error:
        rejected = re.search(r"\b(an? [\w ]+) cannot be read", str(error))  # by `decode` itself
        known = ", ".join(name for name, _ in KINDS.values())
        return f"{len(contents):,} bytes, {rejected[1] if rejected else f'no whole {known}'}"
    return ""


def _stamp(path):
    """Identity of an unchanged file: (path, size, modification time in ns); None if missing."""
    with contextlib.suppress(OSError):
        if not is_record(path):
            found = os.stat(path)
            return os.fsencode(os.path.abspath(path)), found.st_size, found.st_mtime_ns
    return None


def _memory():
    """Opens the database of readable files; its writes are atomic."""
    memory = sqlite3.connect(cache_folder() / "images.sqlite")
    memory.execute("create table if not exists within_limit (path primary key, size, modified)")
    return contextlib.closing(memory)


def _remembered(stamps):
    """The stamps that are in the database; none if it cannot be read."""
    find = "select path, size, modified from within_limit where path = ?"
    with contextlib.suppress(*_NO_MEMORY), _memory() as memory:
        rows = (memory.execute(find, stamp[:1]).fetchone() for stamp in stamps if stamp)
        return {row for row in rows if row}
    return set()


def _remember(stamps):
    # If nothing can be written, the next check decodes them again.
    with contextlib.suppress(*_NO_MEMORY), _memory() as memory, memory:
        memory.executemany("insert or replace into within_limit values (?, ?, ?)", stamps)
