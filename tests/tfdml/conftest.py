import keras
import pytest


@pytest.fixture(autouse=True)
def _float64_on_jax():
    if keras.backend.backend() == "jax":
        import jax

        with jax.enable_x64(True):
            yield
    else:
        yield
