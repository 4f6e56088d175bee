"""Sizes and checksums of files, so that a damaged file is named and never used as it is."""

import json
import zlib

import numpy as np

from tfdml.checks import check

BLOCK = 2**20  # bytes that a checksum is of
_SEAL = "crc32"  # key of the checksum of a JSON file, over its other keys


def checksums(file):
    """The size and the CRC-32 of each MiB of a binary file: {"bytes": int, "crc32": [int, ...]}."""
    blocks = [(len(block), zlib.crc32(block)) for block in iter(lambda: file.read(BLOCK), b"")]
    return {"bytes": sum(size for size, _ in blocks), "crc32": [crc for _, crc in blocks]}


def sealed(content):
    """The text of a JSON file with a checksum of its content, a dict with texts as keys."""
    return json.dumps({**content, _SEAL: _crc32_of(content)}, indent=2) + "\n"


def opened(text, path, remedy):
    """The content of the text of a JSON file; a ValueError with the remedy if it is damaged."""
    try:
        content = dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}): {remedy}") from error
    seal = content.pop(_SEAL, None)
    check(seal in (None, _crc32_of(content)), f"{path} is damaged: {remedy}", crc32=seal)
    return content


def _crc32_of(content):
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


class CheckedFile:
    """A file whose blocks are compared with their checksums before they are used, once each.

    Its `checksums` are not `known` if it is of an earlier version; errors end with the `remedy`.
    """

    def __init__(self, path, known, remedy):
        self.path, self.known, self._remedy = path, known is not None, remedy
        self._bytes, self._crc32 = (known["bytes"], known["crc32"]) if known else (0, [])
        self._unchecked = np.ones(len(self._crc32), bool)

    def check_size(self):
        """Raises a ValueError if the file has another size, a FileNotFoundError if it is gone."""
        size = self.path.stat().st_size
        if self.known and size != self._bytes:
            self._fail(f"it has {size:,} bytes, not {self._bytes:,}")

    def check(self, start=0, stop=None):
        """Raises as `check_size`, or a ValueError if a byte from `start` to `stop` has changed."""
        first, last = start // BLOCK, None if stop is None else -(-stop // BLOCK)
        numbers = first + np.flatnonzero(self._unchecked[first:last])
        if self.known and not len(numbers):
            return
        self.check_size()
        with open(self.path, "rb") as file:
            for number in numbers.tolist():
                file.seek(number * BLOCK)
                if zlib.crc32(file.read(BLOCK)) != self._crc32[number]:
                    self._fail(f"its bytes from {number * BLOCK:,} on have changed")
                self._unchecked[number] = False

    def _fail(self, cause):
        raise ValueError(f"{self.path} is damaged ({cause}): {self._remedy}")
