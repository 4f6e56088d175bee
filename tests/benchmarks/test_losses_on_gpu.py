import json
import pathlib

from benchmarks.losses_on_gpu import page_of

RESULTS = pathlib.Path(__file__).parents[2] / "docs" / "results"


def test_the_page_is_that_of_the_kept_measurements():
    page = page_of(json.loads((RESULTS / "gpu.json").read_text()))
    assert page == (RESULTS / "gpu.md").read_text(encoding="utf-8")
