import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def write_image():
    """Writes an image 20 wide and 16 high, each of its own colours, to a path."""

    def write(path, size=(20, 16)):
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(list(str(path.name).encode()))
        pixels = rng.integers(0, 256, (*size[::-1], 3), np.uint8)
        Image.fromarray(pixels).save(path, format=None if path.suffix else "JPEG")

    return write
