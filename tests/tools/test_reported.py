"""Tables of papers have the commands of their rows, and what was found here."""

import pathlib

import pytest
import reported

PAPER = """\
rows: {a: {loss: triplet, steps: 1800}}
reported:
  measured:
    kept: {at: docs/here.md, what: three seeds, kept: docs/some_t.csv, columns: [recall@1]}
  tables:
    - title: Table 1
      scores: [R@1, R@2]
      rows:
        - {name: A, reported: [58.3, null], row: a, seconds: 4.0, here: {of: kept, row: a}}
"""
PLACE = f"<!-- reported: some/t.yaml -->\n{reported.END}\nAs found.\n"


CSV = """\
row,trial,fold,seed,setting,digest,classes,ranked_by,recall@1
a,,,0,{},12345678,test,distance,0.5
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[58.3, null]", "[58.3]", "Table 1: a row must have a figure for each score. Received"),
        ("of: kept, row: a", "of: kept, row: x", "docs/some_t.csv must have the row. Received"),
    ],
)
def test_figures_that_are_not_there_are_named(old, new, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path, text in {"some/t.yaml": PAPER.replace(old, new), "docs/some_t.csv": CSV}.items():
        pathlib.Path(path).parent.mkdir()
        pathlib.Path(path).write_text(text)
    with pytest.raises(ValueError, match=message):
        reported.with_tables(pathlib.Path("docs/page.md"), PLACE)


def test_the_page_of_the_papers_is_made_of_their_tables(monkeypatch):
    monkeypatch.chdir(pathlib.Path(__file__).parents[2])
    page = pathlib.Path("docs/reproduce.md")
    text = page.read_text(encoding="utf-8")
    assert len(reported.PLACE.findall(text)) == 4
    assert reported.with_tables(page, text) == text
