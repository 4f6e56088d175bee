"""Names and identity of files, their atomic replacement, locks of folders, files of settings."""

import contextlib
import csv
import errno
import filecmp
import hashlib
import os
import pathlib
import re
import tarfile
import tempfile
import uuid
import zipfile

import yaml

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LOCK = ".lock"  # name of a file, written when its folder is locked
LONGEST = 255  # bytes of the name of a file or folder, on usual file systems
_LOCAL = re.compile("(?:(?:simple|file|block)cache::)*(?:file|local)://")  # as fsspec spells it
_BEGINNING = 4096  # bytes that images of one size hardly share
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)


@contextlib.contextmanager
def replacing(path, unfinished=None):
    """Yields a path beside another, `unfinished` or a unique one, which replaces it in the end."""
    unfinished = unfinished or path.with_name(f"{uuid.uuid4().hex}.unfinished")
    try:
        with naming(path):
            yield unfinished
            with unfinished.open("rb+") as file:
                os.fsync(file.fileno())  # else a power cut may leave an empty file of that name
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path):
    """Adds the path of a file or folder to system errors that name none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def locked(folder, taken):
    """Locks a folder, where there are locks; of a locked one it is a BlockingIOError, `taken`."""
    with open(folder / LOCK, "wb") as lock:
        try:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(taken) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield


def check_writable(*folders):
    """Raises an OSError for a folder that cannot be made or written to. Makes nothing."""
    for folder in folders:
        nearest = next(path for path in (folder, *folder.parents) if path.exists())
        if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
            raise PermissionError(f"cannot write to {nearest.absolute()}")


def check_file(**files):
    """Raises an OSError for a file, such as `out=path`, that cannot be written. Makes nothing."""
    for option, path in files.items():
        check_writable(path.parent)
        if path.is_dir():
            raise IsADirectoryError(f"`{option}` must be a file. {path} is a folder")


def as_file_name(text):
    """The text as part of the name of a file: `tfds:a/b` is `tfds_a_b`."""
    return re.sub(r"[^\w.-]+", "_", text)


def shortened(name, ending="", most=LONGEST):
    """The name of a file in at most so many bytes: the start of a long one, and its hash."""
    whole, room = os.fsencode(name), most - len(ending)
    if len(whole) > room:
        digest = hashlib.sha256(whole).hexdigest()[:16]
        name = f"{whole[: room - 17].decode(errors='ignore')}_{digest}"
    return f"{name}{ending}"


def read_text(path):
    """The text of a file in UTF-8, with or without a byte order mark; the ValueError names it."""
    try:
        return pathlib.Path(path).read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be a text file in UTF-8 ({error.reason})") from error


def write_text(path, text):
    """Writes a file in one step: a crash leaves the one before or the new one, never a half."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def folder_of(path):
    """The folder of images by the path of it, or of a file in it such as a CSV file; with `~`.

    Of an archive, that which it is `unpacked` to.
    """
    path = unpacked(pathlib.Path(path).expanduser())
    return path.parent if path.is_file() else path


def cache_folder():
    """The folder `tfdml` of `$XDG_CACHE_HOME` or of `~/.cache`, which it makes."""
    root = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    (root / "tfdml").mkdir(parents=True, exist_ok=True)
    return root / "tfdml"


def kept(name, sources, write):
    """A folder in `cache_folder` that `write(folder)` fills once, until the sources change."""
    stamps = [os.path.realpath(path) for path in sources]
    stamps = [(path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in stamps]
    digest = hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]
    folder = cache_folder() / shortened(as_file_name(name), f"_{digest}")
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            made = pathlib.Path(unfinished, "made")
            made.mkdir()
            write(made)
            try:
                os.replace(made, folder)
            except OSError:  # another process may have made it meanwhile
                if not folder.exists():
                    raise
    return folder


def unpacked(path):
    """The folder of what a zip or tar file holds, unpacked once; another path as it is."""
    if not (path.name.lower().endswith(_ARCHIVES) and path.is_file()):
        return path

    def unpack(folder):
        try:
            if zipfile.is_zipfile(path):
                zipfile.ZipFile(path).extractall(folder)
            else:
                with tarfile.open(path) as file:
                    file.extractall(folder, filter="data")
        except Exception as error:  # damaged archives raise many types
            raise ValueError(f"{path} cannot be unpacked ({error})") from error

    folder = kept(path.name, [path], unpack)
    inner = [each for each in folder.iterdir() if not each.name.startswith((".", "__MACOSX"))]
    return inner[0] if len(inner) == 1 and inner[0].is_dir() else folder


def read_table(path):
    """The names of the columns of a CSV file, and pairs of its place and the cells of each line."""
    with pathlib.Path(path).open(newline="", encoding="utf-8-sig") as file:  # as of spreadsheets
        try:
            first = file.readline()
            separator = max(",;\t|", key=first.count)
            file.seek(0)
            lines, rows = csv.reader(file, delimiter=separator, strict=True), []
            for cells in lines:
                if cells:
                    place = f"{path}, line {lines.line_num}"
                    rows.append((place, [cell.strip() for cell in cells]))
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path} must be a CSV file in UTF-8 ({error})") from error
    return (rows[0][1] if rows else []), rows[1:]


def read_settings(path):
    """{name: value} of a YAML file; the ValueError for another file names it."""
    try:
        settings = yaml.safe_load(path.read_text("utf-8-sig"))
        if not isinstance(settings, dict):
            raise ValueError("not lines of `name: value`")
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    return settings


def identity(path):
    """What the paths and URLs of one file have in common, and those of two files have not.

    Links, hard links, `..` and `file://` lead to one file. Of a file that is not there only the
    path is known, and of a URL of another file system its text.
    """
    path = _local(path)
    if "://" in path:
        return path
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(path)
    return found.st_dev, found.st_ino


def copies(paths, others):
    """Yields (path, other) for each of the others that is another file of the same content."""
    paths = list(filter(os.path.isfile, paths))
    sizes, known = set(map(os.path.getsize, paths)), {}
    for path in paths:
        known.setdefault(_beginning(path), []).append(path)
    for other in map(_local, others):
        with contextlib.suppress(OSError):
            if os.path.getsize(other) not in sizes:
                continue
            own, alike = identity(other), known.get(_beginning(other), ())
            path = next((path for path in alike if identity(path) != own), None)
            if path is not None and filecmp.cmp(path, other, shallow=False):
                yield path, other


def _local(path):
    spelled = _LOCAL.match(path := os.fspath(path))
    return os.path.expanduser(path[spelled.end() :]) if spelled else path


def _beginning(path):
    with open(path, "rb") as file:
        return os.fstat(file.fileno()).st_size, hash(file.read(_BEGINNING))
