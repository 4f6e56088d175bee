import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tfdml.scale.collection import Collection
from tfdml.scale.writing import rows_of


@pytest.fixture(scope="session")
def write_photos():
    """Writes 7 images in two classes, of which one cannot be read, and hidden files."""

    def write(folder):
        rng = np.random.default_rng(0)
        names = ("b/1.png", "b/2.jpg", "b/deep/3.png", "a/1.png", "a/2 [x].png", "0.png")
        for path in [folder / name for name in names]:
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (20, 30, 3)).astype(np.uint8)).save(path)
        (folder / "a" / "bad.png").write_bytes(b"no image")
        (folder / "a" / ".hidden.png").write_bytes(b"")
        (folder / ".trash").mkdir()
        (folder / ".trash" / "4.png").write_bytes(b"")
        return folder

    return write


@pytest.fixture
def photos(write_photos, tmp_path):
    return write_photos(tmp_path / "photos")


@pytest.fixture
def version(served):
    return served.folder / "1"


def write_collection(
    folder, embeddings, labels, shard_size=7, unreadable=(), model="m" * 64, paths=None
):
    """Writes a folder; images of `unreadable` ids have no embedding.

    Args:
        folder: Its path.
        embeddings: (n, dim) floats.
        labels: (n,) texts or None.
        shard_size: Images of a shard.
        unreadable: Ids.
        model: Fingerprint.
        paths: (n,) texts.

    Returns:
        The `Collection`.
    """
    images, dim = embeddings.shape
    paths = [f"images/{i}.png" for i in range(images)] if paths is None else paths
    shards = -(-images // shard_size)
    manifest = {"format": 1, "model": model, "dim": dim, "images": images, "list": "a" * 64}
    manifest |= {"shard_size": shard_size, "shards": shards}
    (folder / "shards").mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    listed = {"path": pa.array(paths, pa.string()), "label": pa.array(labels, pa.string())}
    pq.write_table(pa.table(listed), folder / "list.parquet")
    missing = np.isin(np.arange(images), list(unreadable))
    for number in range(shards):
        ids = np.arange(number * shard_size, min((number + 1) * shard_size, images))
        errors = ["it is empty" if missing[i] else None for i in ids]
        shard = rows_of(ids, np.asarray(embeddings)[ids], errors)
        for place, name in ((1, "path"), (3, "label")):
            shard = shard.add_column(place, name, listed[name].take(pa.array(ids)))
        pq.write_table(shard, folder / "shards" / f"{number:05d}.parquet")
    return Collection(folder)


@pytest.fixture(scope="session")
def write():
    return write_collection


@pytest.fixture
def clustered(tmp_path, write, rng):
    """600 rows around 40 centres, a few of them unreadable, without labels for some."""
    labels = rng.integers(0, 40, 600)
    rows = rng.normal(size=(40, 16))[labels] + 0.4 * rng.normal(size=(600, 16))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    names = [None if i % 50 == 0 else f"class {label}" for i, label in enumerate(labels)]
    return write(tmp_path / "clustered", rows, names, shard_size=64, unreadable=(3, 64, 599))
