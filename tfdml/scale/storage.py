"""Folders and files of any file system that fsspec knows, and in archives by chains of URLs."""

import contextlib
import errno
import functools
import os
import pathlib
import stat
import tarfile
import threading
import uuid
import zipfile
from concurrent.futures import ThreadPoolExecutor

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tfdml.files import locked, replacing

NO_FILE = "there is no such file"
NOT_OPENED = "it cannot be opened"
_ONE_FILE = {errno.EACCES, errno.EIO, errno.ELOOP, errno.ENOTDIR}
_UNFINISHED = ".unfinished"
_LOCAL = (None, "file", "local")  # protocols
_ARCHIVES = ("libarchive", "tar", "zip")
_FETCHING = ThreadPoolExecutor(32, "fetching")  # which mostly waits
_READING_ARCHIVES = threading.Lock()  # which share a file and its position


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
        """Locks a local folder, which it makes: others have no lock that a dead process opens."""
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
    try:
        fs, path = fsspec.core.url_to_fs(url)
    except (zipfile.BadZipFile, tarfile.TarError) as error:
        raise OSError(f"{url} cannot be read ({error})") from error
    return fs, _as_member(fs, path) if _in_archive(url) else path


def around_path(url, path):
    """What precedes and what follows a path of `file_system` in its URL, perhaps a chain.

    The path of a local archive becomes absolute.

    >>> around_path("zip://cats/*.png::s3://bucket/photos.zip", "cats/*.png")
    ('zip://', '::s3://bucket/photos.zip')
    """
    links = url.split("::")
    place = next(row for row, link in enumerate(links) if "://" in link)
    before, link, after = links[:place], links[place].rstrip("/"), links[place + 1 :]
    if after and fsspec.core.split_protocol(after[-1])[0] in _LOCAL:
        after[-1] = LocalFileSystem().unstrip_protocol(after[-1])
    begin = link.removesuffix(path.rstrip("/"))  # with a host, if there is one
    if "://" in path:
        begin = ""
    elif "://" not in begin or (begin == link and path.strip("/")):
        begin = links[place].partition("://")[0] + "://"
    return "::".join([*before, begin]), "".join(f"::{each}" for each in after)


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
        return _contents(path)
    except (FileNotFoundError, KeyError):  # of zipfile, in early versions of fsspec
        return NO_FILE
    except Exception as error:  # clients of networks raise many types
        # There a rejected credential looks like a file that may not be read.
        if local and isinstance(error, OSError) and error.errno in _ONE_FILE:
            return f"{NOT_OPENED}: {error.strerror}"
        raise OSError(f"{path} cannot be read ({error})") from error


def fetch_all(paths):
    """A list of what `fetch` returns for each path."""
    return list(_FETCHING.map(fetch, paths))


def _contents(url):
    """The bytes of a file at a URL; archives stay open from one to the next."""
    with _READING_ARCHIVES if _in_archive(url) else contextlib.nullcontext():
        (kind, _, path), links = url.partition("://"), url.split("::")
        if kind not in _ARCHIVES:
            fs, path = file_system(url)
            return fs.cat_file(path)
        is_local = fsspec.core.split_protocol(links[-1])[0] in _LOCAL
        changed = os.stat(LocalFileSystem._strip_protocol(links[-1])).st_mtime_ns if is_local else 0
        fs = _archive("::".join([f"{kind}://", *links[1:]]), changed)
        return fs.cat_file(_as_member(fs, path.partition("::")[0]))


@functools.lru_cache(8)
def _archive(url, changed):
    return fsspec.core.url_to_fs(url)[0]


def _in_archive(url):
    return any(f"{kind}://" in url for kind in _ARCHIVES)


def _as_member(fs, path):
    """A path as an archive names it: as ./a.png if it was packed by `tar -C photos .`."""
    path = path.removeprefix("./")
    return f"./{path}" if fs.isdir(".") else path
