import json
import pathlib

from benchmarks.peers import coming_from

DOCS = pathlib.Path(__file__).parents[3] / "docs"


def test_the_page_is_that_of_the_kept_measurements(tmp_path):
    page = tmp_path / coming_from.PAGE
    page.parent.mkdir()
    whole = (DOCS / coming_from.PAGE).read_text("utf-8")
    above, _, rest = whole.partition(coming_from.BEGIN)
    below = rest.partition(coming_from.END)[2]
    page.write_text(f"{above}{coming_from.BEGIN}\n\nold\n\n{coming_from.END}{below}", "utf-8")
    measured = json.loads((DOCS / "results" / "peers.json").read_text("utf-8"))
    assert coming_from.write_comparison(tmp_path, measured) == [page]
    assert page.read_text("utf-8") == whole
