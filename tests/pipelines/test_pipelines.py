import subprocess
import sys

import pytest

import pipelines


def test_importing_and_listing_loads_no_heavy_library():
    heavy = ["keras", "matplotlib", "sklearn", "tensorflow", "tensorflow_datasets", "tfdml"]
    program = (
        "import sys, pipelines; pipelines.names(); pipelines.Augmentation(); "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_every_public_name_can_be_had():
    for name in pipelines.__all__:
        assert getattr(pipelines, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'pipelines' has no attribute 'laod'"):
        _ = pipelines.laod


def test_an_unknown_dataset_names_the_nearest_and_all():
    message = (
        r"Unknown dataset 'glyps'\. Did you mean 'glyphs'\? "
        r"Available: digits, folder, glyphs, omniglot\."
    )
    with pytest.raises(ValueError, match=message):
        pipelines.load("glyps")
