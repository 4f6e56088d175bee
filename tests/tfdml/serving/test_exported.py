import pathlib
import shutil

import pytest

from tfdml.serving import exported
from tfdml.serving.exported import load_signatures


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.data-00000-of-00001"])
def test_a_damaged_version_is_named(served, tmp_path, name):
    copy = shutil.copytree(served.folder / "1", tmp_path / "1")
    assert "embed_images" in load_signatures(copy)
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"1 cannot be read \(its graph or variables are damaged"):
        load_signatures(copy)


def test_a_model_at_the_root_has_no_run_beside_it():
    assert exported.config_of(pathlib.Path("/models"), {}) is None
    assert exported.config_of(pathlib.Path("/models/1"), {}) is None
