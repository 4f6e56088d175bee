import keras
import pytest


@pytest.fixture(autouse=True, scope="module")
def _xla_if_asked_for():
    """Models whose compilation is left to Keras train without XLA, except on JAX."""
    with pytest.MonkeyPatch.context() as patch:
        if keras.backend.backend() != "jax":
            patch.setattr(keras.Model, "_resolve_auto_jit_compile", lambda _: False, raising=False)
        yield


@pytest.fixture
def images(rng):
    return rng.uniform(0, 255, (16, 8, 8, 1)).astype("float32")
