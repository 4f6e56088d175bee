"""Tables of papers have the commands of their rows, and what was found here."""

import pathlib

import reported


def test_the_page_of_the_papers_is_made_of_their_tables(monkeypatch):
    monkeypatch.chdir(pathlib.Path(__file__).parents[2])
    page = pathlib.Path("docs/reproduce.md")
    text = page.read_text(encoding="utf-8")
    assert len(reported.PLACE.findall(text)) == 4
    assert reported.with_tables(page, text) == text
