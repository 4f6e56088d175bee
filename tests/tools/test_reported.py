"""Tables of papers have the commands of their rows, and what was found here."""

import pathlib

import pytest
import reported

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
PLACE = f"<!-- reported: some/t.yaml -->\n{reported.END}\nAs found.\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes the tables of a paper into a page; returns its text."""

    def write(paper):
        (tmp_path / "some" / "t.yaml").write_text(paper)
        return reported.with_tables(pathlib.Path("docs/page.md"), PLACE)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "some").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "some_t.csv").write_text(
        "row,trial,fold,seed,setting,digest,classes,ranked_by,recall@1\n"
        "a,,,0,{},12345678,test,distance,0.5\n"
    )
    return write


def test_a_paper_is_shown_beside_what_was_found_here(write):
    written = write(PAPER)
    train = "`python train.py --config some/t.yaml --row"
    evaluate = "`python evaluate.py saved_models"
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
    assert written.endswith(f"\n{reported.END}\nAs found.\n")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[58.3, null]", "[58.3]", "Table 1: a row must have a figure for each score. Received"),
        ("of: kept, row: a", "of: kept, row: x", "docs/some_t.csv must have the row. Received"),
    ],
)
def test_figures_that_are_not_there_are_named(old, new, message, write):
    with pytest.raises(ValueError, match=message):
        write(PAPER.replace(old, new))


def test_the_page_of_the_papers_is_made_of_their_tables(monkeypatch):
    monkeypatch.chdir(pathlib.Path(__file__).parents[2])
    page = pathlib.Path("docs/reproduce.md")
    text = page.read_text(encoding="utf-8")
    assert len(reported.PLACE.findall(text)) == 4
    assert reported.with_tables(page, text) == text
