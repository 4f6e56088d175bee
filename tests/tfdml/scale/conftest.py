import importlib.util

import numpy as np
import pytest
from PIL import Image
from served_models import complete, contents, files, served  # noqa: F401

# Its oldest version that keeps our format is not there for Python 3.10.
collect_ignore_glob = [] if importlib.util.find_spec("pyarrow") else ["test_*.py"]


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
def version(served):  # noqa: F811
    return served.folder / "1"
