import os
import pathlib

import in_chromium
import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def data_folder():
    """The folder named by TFDML_DATA: tfds/, cars196/ and weights/ (CONTRIBUTING.md, Test data)."""
    folder = os.environ.get("TFDML_DATA")
    if not folder:
        pytest.skip("needs TFDML_DATA")
    path = pathlib.Path(folder).expanduser().resolve()
    assert path.is_dir(), f"TFDML_DATA names no folder: {path}"
    return path


@pytest.fixture(scope="module")
def chromium():
    """A driver of a headless Chromium; skips the test where there is none."""
    driver = in_chromium.start()
    yield driver
    driver.quit()
