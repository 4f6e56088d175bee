import pytest


@pytest.fixture
def images(rng):
    return rng.uniform(0, 255, (16, 8, 8, 1)).astype("float32")
