import archives
import pytest


@pytest.fixture
def write_image():
    """Writes an image 20 wide and 16 high, each of its own colours, to a path."""
    return archives.write_image
