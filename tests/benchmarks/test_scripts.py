"""All scripts of benchmarks, which run by hand alone."""

import pathlib
import runpy

import pytest

import benchmarks

FOLDER = pathlib.Path(benchmarks.__file__).parent


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_what_a_script_imports_is_there(script, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    runpy.run_path(str(script), run_name="imported")
