import numpy as np
import pytest
from PIL import Image
from served_models import complete, contents, files, served  # noqa: F401


@pytest.fixture
def photos(tmp_path):
    """A folder of 7 images in two classes, of which one cannot be read, and other files."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "photos"
    for name in ("b/1.png", "b/2.jpg", "b/deep/3.png", "a/1.png", "a/2 [x].png", "0.png"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 30, 3)).astype(np.uint8)).save(path)
    (folder / "a" / "bad.png").write_bytes(b"no image")
    (folder / "a" / ".hidden.png").write_bytes(b"")
    (folder / ".trash").mkdir()
    (folder / ".trash" / "4.png").write_bytes(b"")
    return folder


@pytest.fixture
def version(served):  # noqa: F811
    return served.folder / "1"
