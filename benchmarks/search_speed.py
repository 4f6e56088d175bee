"""Time of an image search: building and opening its index, and answering requests.

    python benchmarks/search_speed.py --model saved_models/NAME/1 --images FOLDER
    python benchmarks/search_speed.py --model saved_models/NAME/1 --data_dir DIRECTORY

Without --images the test half of Omniglot, 13,180 drawings, is written as PNG files of 105 × 105
pixels, from the `data_dir` of tensorflow-datasets. Prints the seconds of a first start and of a
second, and the milliseconds of requests over HTTP, with the model's share: the limit is 20 ms
without the model, for 10,000 images. Then those of the index alone, with rows of 128 dimensions.
"""

import argparse
import http.client
import json
import pathlib
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from tqdm import tqdm

DIM = 128
NEIGHBOURS = 24
CLIENTS = 6  # concurrent clients, as many as are not told to come again


def write_omniglot(data_dir, folder):
    """Writes the drawings of the test half, one folder per character."""
    import tensorflow_datasets as tfds
    from PIL import Image

    drawn = tfds.as_numpy(tfds.load("omniglot", split="test", data_dir=data_dir))
    for number, example in enumerate(tqdm(drawn, desc="Writing", delay=2, unit="image")):
        path = folder / f"{example['label']:04d}" / f"{number:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(example["image"]).save(path)


def milliseconds(seconds):
    """The median and the 95th percentile, as text."""
    median, high = 1e3 * np.quantile(seconds, [0.5, 0.95])
    return f"median {median:7.2f} ms, 95 % within {high:7.2f} ms"


def measure_service(version, images, requests):
    """Prints the times of a search service over the images."""
    from tfdml.search.application import create_application
    from tfdml.search.folder_search import FolderSearch
    from tfdml.search.search_model import SearchModel
    from tfdml.search.server import serve

    model = SearchModel(version)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "index"
        for start in ("first", "second"):
            began = time.perf_counter()
            search = FolderSearch(model, images, path)
            added, _ = search.refresh()
            print(f"{start} start: {added:,} images embedded, {time.perf_counter() - began:.1f} s")
        size = sum(file.stat().st_size for file in path.rglob("*"))
        print(f"{len(search):,} images, index of {size / 1e6:.1f} MB")
        upload = {"upload_bytes": 20_000_000}
        application = create_application(search, neighbours=NEIGHBOURS, **upload)
        server = serve(application, host="127.0.0.1", port=0, **upload)
        threading.Thread(target=server.run, daemon=True).start()
        keys = list(search.sample(requests, seed=0))
        measure_requests(server.effective_port, keys, [*map(search.images.read, keys)])


def measure_requests(port, keys, contents):
    """Prints the milliseconds of requests by picture and by id, single and concurrent."""

    def by_picture(content):
        began = time.perf_counter()
        answer = ask(port, "POST", "/api/search", content)
        return time.perf_counter() - began, answer["seconds"]

    def by_id(key):
        began = time.perf_counter()
        ask(port, "GET", f"/api/similar/{key}")
        return time.perf_counter() - began

    by_picture(contents[0])
    whole, parts = zip(*map(by_picture, contents), strict=True)
    parts = {name: np.array([part[name] for part in parts]) for name in parts[0]}
    print(f"by a picture:          {milliseconds(whole)}")
    print(f"  without embedding:   {milliseconds(whole - parts['embedding'])}")
    for name in ("embedding", "search", "reranking"):
        if name in parts:
            print(f"  {name + ':':21}{milliseconds(parts[name])}")
    print(f"by an id:              {milliseconds([by_id(key) for key in keys])}")
    with ThreadPoolExecutor(CLIENTS) as pool:
        began = time.perf_counter()
        list(pool.map(by_picture, contents))
        speed = len(contents) / (time.perf_counter() - began)
    print(f"{CLIENTS} at once, by pictures: {speed:.0f} answers/s")


def ask(port, method, path, body=None):
    """The JSON of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(method, path, body)
    answer = json.load(connection.getresponse())
    connection.close()
    return answer


def measure_index(count, queries):
    """Prints the times of the index alone."""
    from tfdml.scale.collection import Rows
    from tfdml.scale.stored_index import ExactIndex

    rows = np.random.default_rng(0).standard_normal((count + queries, DIM), dtype=np.float32)
    gallery, seconds = Rows(np.arange(count), rows[queries:]), []
    index = ExactIndex(gallery, matching=lambda where: gallery.ids)
    for row in rows[:queries]:
        began = time.perf_counter()
        index.nearest(row, NEIGHBOURS)
        seconds.append(time.perf_counter() - began)
    print(f"{count:9,} rows, {milliseconds(seconds)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=pathlib.Path, help="a version of a served model")
    parser.add_argument("--images", type=pathlib.Path, help="Omniglot if not given")
    parser.add_argument("--data_dir", help="of tensorflow-datasets, for Omniglot")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    arguments = parser.parse_args()
    if arguments.model:
        with tempfile.TemporaryDirectory() as folder:
            if arguments.images is None:
                write_omniglot(arguments.data_dir, pathlib.Path(folder))
            images = arguments.images or pathlib.Path(folder)
            measure_service(arguments.model, images, arguments.requests)
    for count in arguments.rows:
        measure_index(count, min(100, arguments.requests))


if __name__ == "__main__":
    main()
