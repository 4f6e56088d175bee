import numpy as np
import pytest
from PIL import Image
from stored_collections import write_collection


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


@pytest.fixture
def clustered(tmp_path, rng):
    """600 rows around 40 centres, a few of them unreadable, without labels for some."""
    labels = rng.integers(0, 40, 600)
    rows = rng.normal(size=(40, 16))[labels] + 0.4 * rng.normal(size=(600, 16))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    names = [None if i % 50 == 0 else f"class {label}" for i, label in enumerate(labels)]
    options = {"shard_size": 64, "unreadable": (3, 64, 599)}
    return write_collection(tmp_path / "clustered", rows, names, **options)
