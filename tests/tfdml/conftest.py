import keras
import pytest

if keras.backend.backend() == "tensorflow":
    from served_models import (  # noqa: F401
        address,
        complete,
        complete_signatures,
        contents,
        files,
        served,
        server,
    )


@pytest.fixture(scope="session")
def _compiled_once_on_jax(tmp_path_factory):
    """JAX compiles an eager loop anew at every call: from the second on it finds it here."""
    if keras.backend.backend() == "jax":
        import jax

        jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("jax")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


@pytest.fixture(autouse=True)
def _float64_on_jax(_compiled_once_on_jax):
    if keras.backend.backend() == "jax":
        import jax

        with jax.enable_x64(True):
            yield
    else:
        yield
