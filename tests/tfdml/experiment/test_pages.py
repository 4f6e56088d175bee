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


PAPER = """\
rows: {a: {loss: triplet, steps: 1800}, b: {loss: lifted, steps: 0}}
reported:
  measured:
    kept: {at: docs/here.md, what: three seeds, kept: docs/some_t.csv, columns: [recall@1]}
    page: {at: docs/here.md, what: earlier}
  tables:
    - title: Table 1
      scores: [R@1, R@2]
      note: In percent.
      evaluate: --k '[1, 2]'
      rows:
        - {name: A, reported: [58.3, null], row: a, seconds: 4.0, here: {of: kept, row: a}}
        - {name: A, note: 64 wide, row: a, train: --embedding_dim 64,
           here: {of: page, found: R@1 40.1}}
        - {name: B, reported: [1.5, 20], row: b, evaluate: --nmi false}
        - {name: C, without: "quoted: no network"}
"""


def test_a_paper_is_shown_beside_what_was_found_here(given, tmp_path):
    (tmp_path / given).write_text(PAPER)
    results.write(tmp_path / "docs" / "some_t.csv", [line(read_table(given), "a", 0.5)])
    assert write(given, cwd=tmp_path).code == 0
    written = (tmp_path / "docs" / "page.md").read_text()
    train, evaluate = f"`python train.py --config {given} --row", "`python evaluate.py saved_models"
    scored = f"{evaluate}/some_t_a --k '[1, 2]'`"
    assert "### Table 1\n\nIn percent.\n\n| row | R@1 | R@2 | commands | hours | here |" in written
    assert written.split("|---|---|---|---|---|---|\n")[1].splitlines()[:4] == [
        f"| A | 58.3 | – | {train} a`<br>{scored} | 2 | recall@1 50.0 ([three seeds](here.md)) |",
        f"| A (64 wide) | – | – | {train} a --embedding_dim 64`<br>{scored} | 0 "
        "| R@1 40.1 ([earlier](here.md)) |",
        f"| B | 1.5 | 20 | {train} b`<br>{evaluate}/some_t_b --nmi false --k '[1, 2]'` | 0 "
        "| not run: needs the data and a GPU |",
        "| C | – | – | – | – | quoted: no network |",
    ]
    assert "| `a` | 50.0 | 1 |" in written  # what is kept beside the page


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[58.3, null]", "[58.3]", "Table 1: a row must have a figure for each score. Received"),
        ("of: kept, row: a", "of: kept, row: x", "docs/some_t.csv must have the row. Received"),
    ],
)
def test_figures_that_are_not_there_are_named(old, new, message, given, tmp_path):
    (tmp_path / given).write_text(PAPER.replace(old, new))
    results.write(tmp_path / "docs" / "some_t.csv", [line(read_table(given), "a", 0.5)])
    assert message in write(given, cwd=tmp_path).sentence
