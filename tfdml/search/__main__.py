"""Serves a web page and a JSON interface for search by image in a folder.

    python -m tfdml.search --model saved_models/NAME/1 --images FOLDER

Embeds the images of the folder, saves their index, and prints the address of the page. The next
start and the page's refresh button embed only new images.
"""

import dataclasses
import hashlib
import importlib.util
import ipaddress
import os
import pathlib
import warnings
from typing import ClassVar

from tfdml import search
from tfdml.command_line import Count, Parser, Positive, Settings, one_sentence
from tfdml.files import as_file_name, check_writable, shortened
from tfdml.quiet import import_tensorflow, keep_printing
from tfdml.scale.layout import is_collection
from tfdml.search import MOST_NEIGHBOURS
from tfdml.serving.exported import find_version
from tfdml.serving.versions import name_of

PROGRAM = "tfdml.search"
NEEDED = {"faiss": "faiss-cpu"} | {
    n: n for n in ("duckdb", "flask", "fsspec", "pyarrow", "waitress")
}
LOCAL_NAMES = ["localhost", "127.0.0.1", "::1"]
LISTED = 5  # ignored files named in the warning


@dataclasses.dataclass(frozen=True)
class Search(Settings):
    """Model, images and server of a search.

    Args:
        model: A run's folder in `saved_models/`, for its newest version, or one version.
        images: Folder of the images, searched with its sub-folders: .bmp, .gif, .jpeg, .jpg, .png
            and .webp. Hidden files and links that lead out of it are ignored. Nothing is ever
            written to it. Or a folder that `python -m tfdml.scale` embedded and indexed.
        uploads: Folder for the pictures that the page adds to such a collection. If not given,
            nothing can be added or removed.
        index: Folder of the index, which the next start updates. If not given, a folder in
            `indexes/` of the current folder, named after the model and `images`.
        host: Address to listen at. The default can be reached from this computer only, 0.0.0.0 from
            every network of this computer, by anyone: there is no password.
        port: Port to listen at, from 0 to 65535; 0 for any free one.
        trusted_hosts: Host names that browsers may use, such as `'[search.example.org]'`; others
            are rejected. If not given, those of this computer for a local `host`, otherwise any.
        upload_megabytes: Largest size of an uploaded image, at most 1024.
        neighbours: Default number of images in an answer (`k` of a request), from 1 to 200.
        rerank: Least number of nearest images that a learned similarity reranks; 0 ranks by
            distance. If not given, 100 for a model with such a similarity (`--loss pddm` and
            related losses).
    """

    paths: ClassVar = ("model", "images", "uploads", "index")

    model: str
    images: str
    uploads: str | None = None
    index: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    trusted_hosts: list[str] | None = None
    upload_megabytes: Positive = 20.0
    neighbours: int = 24
    rerank: Count | None = None

    def __post_init__(self):
        self.check(0 <= self.port <= 65535, "`port` must be from 0 to 65535")
        expected = f"`neighbours` must be from 1 to {MOST_NEIGHBOURS}"
        self.check(1 <= self.neighbours <= MOST_NEIGHBOURS, expected)
        self.check(self.upload_megabytes <= 1024, "`upload_megabytes` must be at most 1024")


def main(arguments=None):
    keep_printing()
    more = "docs/search.md documents the JSON interface and its limits."
    texts = {"prog": PROGRAM, "description": __doc__, "epilog": more}
    parser = Parser(Search, as_positional=False, **texts)
    settings = parser.settings_of(parser.parse_args(arguments))
    with one_sentence(PROGRAM, ValueError, TypeError, OSError, ImportError):
        missing = [name for module, name in NEEDED.items() if not importlib.util.find_spec(module)]
        if missing:
            raise ImportError(f"the search needs {', '.join(missing)}: pip install -e '.[search]'")
        version = find_version(pathlib.Path(settings.model))
        search.server.listening(settings.host, settings.port).close()  # before it embeds
        opened = open_collection if is_collection(settings.images) else open_folder
        run_server(settings, opened(settings, version))


def open_collection(settings, version):
    """The search of a collection, by its index if it has one."""
    expected = "`index` and `rerank` are for a folder of images, not one that tfdml.scale indexed"
    settings.check(not (settings.index or settings.rerank), expected)
    import_tensorflow()
    model = search.search_model.SearchModel(version)
    uploads = settings.uploads and pathlib.Path(settings.uploads)
    opened = search.collection_search.CollectionSearch(model, settings.images, uploads)
    images = f"{len(opened):,} images of {settings.images}"
    print(f"{images}, ranked by {opened.ranked_by}\nIndex: {opened.collection}")
    return opened


def open_folder(settings, version):
    """The search of a folder, whose index is made or brought up to date."""
    expected = "`uploads` is for a collection; put pictures into the folder of `images` itself"
    settings.check(not settings.uploads, expected)
    index = pathlib.Path(settings.index or default_index(version, settings.images))
    expected = "`index` must be a folder. A file is of an earlier version: remove it"
    settings.check(not index.is_file(), expected)
    check_writable(index)
    import_tensorflow()
    model = search.search_model.SearchModel(version)
    opened = search.folder_search.FolderSearch(
        model, settings.images, index, rerank=settings.rerank
    )
    added, gone = opened.refresh()
    ignored = [f"{name} ({cause})" for name, cause in opened.left_out.items()]
    if ignored:
        listed = "; ".join(ignored[:LISTED] + ["..."] * (len(ignored) > LISTED))
        warnings.warn(f"ignored {len(ignored):,} files: {listed}", stacklevel=2)
    images = f"{len(opened):,} images of {settings.images}"
    changed = f"({added:,} added, {gone:,} removed)"
    print(f"{images} {changed}, ranked by {opened.ranked_by}\nIndex: {index}")
    return opened


def default_index(version, images):
    """A folder in `indexes/`, named after the model and the folder of images."""
    images = pathlib.Path(images).resolve()
    place = hashlib.sha256(os.fsencode(images)).hexdigest()[:8]
    name = f"{name_of(version)}_{images.name}_{place}".replace("/", "_")
    return f"indexes/{shortened(as_file_name(name))}"


def run_server(settings, opened):
    """Answers requests until Ctrl-C."""
    host, port, size = settings.host, settings.port, int(settings.upload_megabytes * 1e6)
    trusted = settings.trusted_hosts or ([*LOCAL_NAMES, host] if is_local(host) else None)
    options = {"neighbours": settings.neighbours, "trusted_hosts": trusted}
    application = search.application.create_application(opened, upload_bytes=size, **options)
    server = search.server.serve(application, host=host, port=port, upload_bytes=size)
    if not is_local(host):
        open_to_all = f"anyone who reaches {host} can see these images: there is no password"
        warnings.warn(open_to_all, stacklevel=2)
    print(f"Search: {address(host, server.effective_port)} (Ctrl-C stops it)", flush=True)
    server.run()
    opened.stop()


def is_local(host):
    """Whether an address can be reached from this computer only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address(host, port):
    """The URL of the page."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host) or host
    return f"http://[{reached}]:{port}/" if ":" in reached else f"http://{reached}:{port}/"


if __name__ == "__main__":
    main()
