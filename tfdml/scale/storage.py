"""Folders and files of any file system that fsspec knows."""

import contextlib
import errno
import os
import pathlib
import stat
import uuid
from concurrent.futures import ThreadPoolExecutor

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tfdml.checks import check
from tfdml.files import locked, replacing

NO_FILE = "there is no such file"
_ONE_FILE = {errno.EACCES, errno.ENOTDIR, errno.ELOOP}
_UNFINISHED = ".unfinished"
_ARCHIVES = ("libarchive", "tar", "zip")  # of which several threads cannot read
_FETCHING = ThreadPoolExecutor(32, "fetching")  # which mostly waits


class Folder:
    """A folder, given by its path or its URL, whose files appear whole or not at all."""

    def __init__(self, url):
        self.url = str(url)
        self._fs, self._root = file_system(self.url)
        self._local = isinstance(self._fs, LocalFileSystem)

    def __str__(self):
        return self.url

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
        """Writes a file, which `fill` is called with, aside and renames it; or leaves nothing."""
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
        """Locks a local folder, which is made if it does not exist, or raises a BlockingIOError."""
        if not self._local:
            yield
            return
        folder = pathlib.Path(self._root)
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, f"another process is writing to {self.url}"):
            yield

    def _path(self, name):
        return f"{self._root}/{name}".rstrip("/")


def file_system(url):
    """The file system of a path or URL, and the path in it."""
    if "://" not in url:  # a folder may be named a::b
        return LocalFileSystem(), LocalFileSystem._strip_protocol(url)
    packed = any(f"{kind}://" in url for kind in _ARCHIVES)
    check(not packed, "files must not be in an archive: unpack it", url=url)
    return fsspec.core.url_to_fs(url)


def fetch(path):
    """The bytes of the file at a path or URL, or a text: why this file alone cannot be read.

    Raises an OSError for a reason that may pass, such as a network that is down.
    """
    local = "://" not in path
    try:
        if local:
            if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for
                return "it is not a regular file"
            return pathlib.Path(path).read_bytes()
        fs, inner = file_system(path)
        return fs.cat_file(inner)
    except FileNotFoundError:
        return NO_FILE
    except Exception as error:  # clients of networks raise many types
        # There a rejected credential looks like a file that may not be read.
        if local and isinstance(error, OSError) and error.errno in _ONE_FILE:
            return f"it cannot be opened: {error.strerror}"
        raise OSError(f"{path} cannot be read ({error})") from error


def fetch_all(paths):
    """A list of what `fetch` returns for each path."""
    return list(_FETCHING.map(fetch, paths))
