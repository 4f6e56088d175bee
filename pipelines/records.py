"""Images inside TFRecord files, addressed by paths: FILE.tfrecord:OFFSET:LENGTH."""

import contextlib
import os
import pathlib
import re

import numpy as np

_RECORD = re.compile(r".+\.tfrecord:\d+:\d+", re.DOTALL)


def is_record(path):
    """Whether a path addresses bytes inside a TFRecord file."""
    return _RECORD.fullmatch(os.fspath(path)) is not None


def read(path):
    """The bytes of a file, or of a record."""
    return read_all([os.fspath(path)])[0] if is_record(path) else pathlib.Path(path).read_bytes()


def read_all(paths):
    """The bytes of records, (n,) objects; announces all reads first, which a disk then orders."""
    records = (os.fsdecode(path).rsplit(":", 2) for path in paths)
    places = [(file, int(offset), int(length)) for file, offset, length in records]
    contents = np.empty(len(places), object)
    with contextlib.ExitStack() as files:
        opened = {
            file: files.enter_context(open(file, "rb", buffering=0))
            for file in {file for file, *_ in places}
        }
        if hasattr(os, "posix_fadvise"):
            for file, offset, length in places:
                os.posix_fadvise(opened[file].fileno(), offset, length, os.POSIX_FADV_WILLNEED)
        for row, (file, offset, length) in enumerate(places):
            opened[file].seek(offset)
            contents[row] = opened[file].read(length)
            if len(contents[row]) != length:
                raise OSError(f"{file} ends before byte {offset + length}")
    return contents
