"""Folders and files of any file system that fsspec knows, such as /photos and s3://bucket/photos."""

import contextlib
import errno
import os
import pathlib
import stat
import uuid

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tfdml.files import check_writable, locked, replacing

NO_FILE = "there is no such file"
_OF_ONE_FILE = {errno.EACCES, errno.ENOTDIR, errno.ELOOP}
_UNFINISHED = ".unfinished"


class Folder:
    """A folder whose files appear whole or not at all.

    Args:
        url: Its path, or its URL such as `s3://bucket/embeddings`.

    Raises:
        ValueError: If there is no such kind of URL.
        ImportError: If a package for this kind of URL is missing; names it.
    """

    def __init__(self, url):
        self.url = str(url)
        self._fs, self._root = fsspec.core.url_to_fs(self.url)
        self._local = isinstance(self._fs, LocalFileSystem)

    def __str__(self):
        return self.url

    def check_writable(self):
        """Raises an OSError if a local folder cannot be made or written to. Makes nothing."""
        if self._local:
            check_writable(pathlib.Path(self._root))

    def names(self, inner=""):
        """The names of what is in the folder or in one below it; none if it does not exist."""
        self._fs.invalidate_cache()
        try:
            paths = self._fs.ls(self._path(inner), detail=False)
        except FileNotFoundError:
            return set()
        return {path.rstrip("/").rpartition("/")[2] for path in paths}

    def open(self, name):
        """A file of the folder, opened to read its bytes."""
        return self._fs.open(self._path(name), "rb")

    def write(self, name, fill):
        """Writes a file aside and renames it.

        Args:
            name: Path of the file in the folder.
            fill: Called with a binary file to write to.

        Raises:
            OSError: If it cannot be written; then nothing is left of it.
        """
        path = self._path(name)
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        if self._local:
            with replacing(pathlib.Path(path)) as unfinished, open(unfinished, "wb") as file:
                fill(file)
            return
        aside = f"{path}.{uuid.uuid4().hex}{_UNFINISHED}"
        try:
            with self._fs.open(aside, "wb") as file:
                fill(file)
            self._fs.mv(aside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                self._fs.rm(aside)
            raise

    def remove_unfinished(self, inner):
        """Removes what killed writers left in a folder below."""
        for name in self.names(inner):
            if name.endswith(_UNFINISHED):
                self._fs.rm(self._path(f"{inner}/{name}".lstrip("/")))

    @contextlib.contextmanager
    def only_writer(self):
        """Locks a local folder, which is made if it does not exist.

        Other file systems have no lock that the death of a process opens.

        Raises:
            BlockingIOError: If another process has locked it.
        """
        if not self._local:
            yield
            return
        folder = pathlib.Path(self._root)
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, f"another process is writing to {self.url}"):
            yield

    def _path(self, name):
        return f"{self._root}/{name}".rstrip("/")


def fetch(path):
    """The bytes of the file at a path or URL.

    Returns:
        Bytes, or a text: the reason why this file, unlike others, cannot be read.

    Raises:
        OSError: If it cannot be read for a reason that may pass, such as a network that is down.
    """
    local = "://" not in path
    try:
        if local:
            if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for
                return "it is not a regular file"
            return pathlib.Path(path).read_bytes()
        fs, inner = fsspec.core.url_to_fs(path)
        return fs.cat_file(inner)
    except FileNotFoundError:
        return NO_FILE
    except Exception as error:  # clients of networks raise many types
        # There a rejected credential looks like a file that may not be read.
        if local and isinstance(error, OSError) and error.errno in _OF_ONE_FILE:
            return f"it cannot be opened: {error.strerror}"
        raise OSError(f"{path} cannot be read ({error})") from error
