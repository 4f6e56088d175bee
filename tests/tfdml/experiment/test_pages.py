"""Pages have the tables of the results that are kept beside them."""

import programs
import pytest

from tfdml.experiment import results
from tfdml.experiment.__main__ import main
from tfdml.experiment.trainings import Row
from tfdml.runs.table import read_table


def line(table, row, recall, **more):
    keys = {"trial": "", "fold": "", "seed": 0, "setting": "{}", "digest": Row(table, row).digest}
    scores = {"classes": "test", "ranked_by": "distance", "recall@1": recall}
    return {"row": row, **keys, **scores, **more}


@pytest.fixture
def given(tmp_path, monkeypatch):
    """The path of a table, relative to the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some").mkdir()
    (tmp_path / "docs").mkdir()
    text = "rows: {a: {loss: triplet}, b: {loss: lifted}}\nscore: [recall@1]\n"
    (tmp_path / "some" / "t.yaml").write_text(text)
    return "some/t.yaml"


def write(*arguments, cwd):
    return programs.run(main, *arguments, "--page", "docs/page.md", cwd=cwd)


def test_results_are_kept_and_a_page_is_begun(given, tmp_path):
    table, other = read_table(given), read_table(given, {"steps": 3})
    (tmp_path / "runs" / "some_t").mkdir(parents=True)
    made, page = tmp_path / "runs" / "some_t" / "results.csv", tmp_path / "docs" / "page.md"
    results.write(made, [line(table, "a", 0.5), line(table, "b", 0.25)])
    assert write(given, cwd=tmp_path).code == 0
    place, _, heads, _, first, second, *_ = page.read_text().splitlines()[2:]
    assert (place, heads) == ("<!-- results: some/t.yaml -->", "| row | recall@1 | seeds |")
    assert (first, second) == ("| `a` | 50.0 | 1 |", "| `b` | 25.0 | 1 |")
    results.write(made, [line(other, "a", 0.75)])  # kept beside the others
    text = page.read_text() + "\n<!-- results: some/t.yaml steps=3 -->\n<!-- end of the results -->"
    page.write_text(text + "\nAs found.\n")
    assert write(given, "--set", "steps=3", cwd=tmp_path).code == 0
    written = page.read_text()
    assert "| `a` | 50.0 | 1 |" in written
    assert "steps=3 -->\n\n| row | recall@1 | seeds |\n|---|---|---|\n| `a` | 75.0 | 1 |" in written
    assert written.endswith("<!-- end of the results -->\nAs found.\n")
    made.unlink()
    assert write(given, cwd=tmp_path).code == 0
    assert page.read_text() == written


def test_results_of_other_settings_are_not_in_a_table(given, tmp_path):
    table = read_table(given)
    results.write(tmp_path / "docs" / "some_t.csv", [line(table, "a", 0.5)])
    (tmp_path / given).write_text("rows: {a: {loss: triplet, steps: 3}}\n")
    assert write(given, cwd=tmp_path).code == 0
    assert "No row has scores yet." in (tmp_path / "docs" / "page.md").read_text()


def test_a_page_without_a_place_is_rejected(given, tmp_path):
    (tmp_path / "docs" / "page.md").write_text("# Page\n")
    result = write(given, cwd=tmp_path)
    assert "page.md must have a line `<!-- results: TABLE -->` and later" in result.sentence
