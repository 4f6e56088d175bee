import contextlib
import http.client
import io
import json
import pathlib
import threading

import numpy as np
import pytest
from image_contents import encode
from PIL import Image
from stored_collections import write_collection
from waitress import wasyncore

from tfdml.search.application import create_application
from tfdml.search.folder_search import FolderSearch
from tfdml.search.picture_files import RejectedError
from tfdml.search.server import serve

COLOURS = {  # of the images of `folder`, by their names
    "red/bright.png": (250, 10, 10),
    "red/dark.png": (120, 5, 10),
    "green/bright.png": (10, 250, 10),
    "green/dark.png": (5, 120, 10),
    "blue.png": (10, 10, 250),
}


class ByColour:
    """A model whose embedding of a picture is its mean colour; its similarity likes the bright."""

    radius = None
    fingerprint = "by colour"
    dim = 3
    batch_size = 2

    version = pathlib.Path("saved_models/by_colour/1")
    learned = decides = False
    embedded = 0  # pictures so far

    def embed_picture(self, content):
        [row], [problem] = self.embed(*self.read([content]))
        if problem:
            raise RejectedError(problem)
        return row

    def read(self, contents):
        self.embedded += len(contents)
        return zip(*map(colour_of, contents), strict=True)

    def embed(self, colours, problems):
        return np.stack(colours), problems

    def score(self, query, rows):
        return rows.sum(axis=1)

    def decide(self, row):
        """By the rule that red is a class and the rest is none; nothing unless it is asked to."""
        if not self.decides:
            return None
        distance = float(np.linalg.norm(row - [250, 10, 10])) / 100
        facts = {"probability": np.exp(-distance), "distance": distance, "threshold": 1.5}
        return {"known": distance < 1.5, "class": "red", **facts, "method": "mean"}


def colour_of(content):
    """The mean colour of the bytes of a file, or why there is none."""
    if isinstance(content, bytes):
        try:
            pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
            return pixels.mean(axis=(0, 1), dtype=np.float32), None
        except OSError:
            content = "it is no image"
    return np.full(3, np.nan, np.float32), content


@pytest.fixture
def model():
    return ByColour()


@pytest.fixture
def encoded():
    """The bytes of a picture of one colour."""

    def plain(colour, kind="PNG", size=(40, 30)):
        return encode(Image.new("RGB", size, colour), kind)

    return plain


@pytest.fixture
def folder(tmp_path, encoded):
    path = tmp_path / "images"
    for name, colour in COLOURS.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(encoded(colour))
    return path


@pytest.fixture
def collection(tmp_path, folder, model):
    """The images of `folder`, of which one is at a URL, and one that could not be read."""
    names = [*COLOURS, "gone/x.png"]
    labels = [name.partition("/")[0] if "/" in name else None for name in names]
    paths = ["memory://blue.png" if name == "blue.png" else str(folder / name) for name in names]
    rows = np.array([*COLOURS.values(), (0, 0, 0)], np.float32)
    options = {"unreadable": [5], "model": model.fingerprint, "paths": paths}
    return write_collection(tmp_path / "collection", rows, labels, **options)


@pytest.fixture
def index(tmp_path):
    return tmp_path / "indexes" / "colours"


@pytest.fixture
def search(model, folder, index):
    """A search of the folder, refreshed once."""
    opened = FolderSearch(model, folder, index)
    opened.refresh()
    return opened


@pytest.fixture
def serving():
    """Serves a search, in a context that gives a function of the requests to it."""

    @contextlib.contextmanager
    def context(search, upload_bytes=100_000, **options):
        options = {"neighbours": 3, **options}
        application = create_application(search, upload_bytes=upload_bytes, **options)
        server = serve(application, host="127.0.0.1", port=0, upload_bytes=upload_bytes)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield Client(server.effective_port)
        finally:
            # The server may close the trigger before it is pulled.
            with contextlib.suppress(OSError):
                server.trigger.pull_trigger(lambda: wasyncore.close_all(server._map))
            thread.join(10)
            server.task_dispatcher.shutdown()

    return context


class Client:
    def __init__(self, port):
        self.port = port

    def __call__(self, path, body=None, method=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        method = method or ("GET" if body is None else "POST")
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        content = response.read()
        connection.close()
        if response.headers["Content-Type"] == "application/json":
            content = json.loads(content)
        return response.status, content, response.headers
