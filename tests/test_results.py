"""Tables of docs/results are those of the kept results, which are of today's recipes."""

import itertools
import json
import pathlib
import re

import pytest

from tfdml.experiment import pages, results
from tfdml.experiment.trainings import Row, settings_digest
from tfdml.runs.recipe import Recipe

ROOT = pathlib.Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "results").glob("*.md"))
WITH_TABLES = [page for page in PAGES if pages.PLACE.search(page.read_text(encoding="utf-8"))]


@pytest.fixture
def _at_the_top(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(autouse=True, scope="module")
def _each_digest_is_made_once():
    digests, digest = {}, Row.digest.func

    def made_once(row):
        key = repr(row.table), row.name
        return digests.get(key) or digests.setdefault(key, digest(row))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Row, "digest", property(made_once))
        yield


def first_table(lines):
    """The cells of its rows, heads first."""
    from_it = itertools.dropwhile(lambda line: not line.startswith("|"), lines)
    rows = itertools.takewhile(lambda line: line.startswith("|"), from_it)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def with_tables():
    """The pages with tables; slow is that of hundreds of rows."""
    for page in WITH_TABLES:
        marks = [pytest.mark.slow] * (page.stem == "first_run")
        yield pytest.param(page, marks=marks, id=page.stem)


def test_pages_have_tables():
    names = {page.stem for page in WITH_TABLES}
    assert {"best", "cub200", "first_run", "hdc", "pddm"} <= names


@pytest.mark.usefixtures("_at_the_top")
@pytest.mark.parametrize("page", with_tables())
def test_tables_are_made_of_the_kept_results(page):
    text = page.read_text(encoding="utf-8")
    assert pages.with_tables(page, text) == text


@pytest.mark.usefixtures("_at_the_top")
@pytest.mark.parametrize("page", with_tables())
def test_kept_results_are_of_the_recipes_and_the_settings_of_their_page(page):
    files = {}
    for table in pages.tables_of(page.read_text(encoding="utf-8")):
        path = pages.kept_at(page, table)
        every, own = files.setdefault(path, (results.read(path), []))
        todays = pages.own_lines(table, every)
        assert todays, table.name
        own += todays
    for path, (every, own) in files.items():
        assert len(own) == len(every), path


@pytest.mark.usefixtures("_at_the_top")
def test_trials_of_past_searches_have_the_settings_of_their_ranges():
    searches = sorted((ROOT / "docs" / "results").glob("*_search.csv"))
    assert len(searches) == 10
    for path in searches:
        [of] = (p for p in (ROOT / "recipes").rglob("*.yaml") if name_of(p) == path.stem)
        table = pages.read_table(of)
        lines = results.read(path)
        assert len(pages.own_lines(table, lines)) == len(lines) > 10
        for line in lines:
            for name, value in json.loads(line["setting"]).items():
                assert value in table.ranges(line["row"])[name], (path, line["trial"])


SEARCHES = {
    "cub200_search": ("cub200", "## The search"),
    "density_omniglot_search": ("density", "## The weights"),
    "hdc_omniglot_search": ("hdc", "## The search"),
    "objectives_omniglot_search": ("objectives", "## The search"),
    "pddm_cars_search": ("pddm", "## The search on cars"),
    "pddm_omniglot_search": ("pddm", "## The search"),
}


@pytest.mark.parametrize("kept", SEARCHES)
def test_figures_of_a_search_are_those_of_its_trials(kept):
    page, section = SEARCHES[kept]
    folder = ROOT / "docs" / "results"
    text = (folder / f"{page}.md").read_text("utf-8").split(f"{section}\n")[1].split("\n## ")[0]
    rows = first_table(text.splitlines())[2:]
    shown = {figure for cells in rows for figure in re.findall(r"\b\d\d\.\d\b", " ".join(cells))}
    scores = ("recall@1", "nmi")
    lines = results.read(folder / f"{kept}.csv")
    known = {f"{100 * line[name]:.1f}" for line in lines for name in scores if name in line}
    assert len(shown) > 10
    assert shown <= known, shown - known


def name_of(path):
    return f"{path.parent.name}_{path.stem}"


@pytest.mark.usefixtures("_at_the_top")
def test_pages_and_comments_name_files_that_are_there():
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    texts += (ROOT / "recipes").rglob("*.yaml")
    named = {
        path
        for text in texts
        for path in re.findall(r"(?:recipes|docs/results)/[\w/]+\.\w+", text.read_text("utf-8"))
    }
    assert len(named) > 40
    assert not [path for path in named if not (ROOT / path).exists()]


def test_figures_of_the_readme_are_those_of_the_pages_that_it_links():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split("## Results\n")[1].split("\n## ")[0].splitlines()
    start = next(n for n, line in enumerate(section) if line.startswith("| race"))
    (_, _, *papers), (_, _, *races) = first_table(section), first_table(section[start:])
    assert (len(papers), len(races)) == (4, 4)
    reproduced = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8").splitlines()
    checked = 0
    for cells in [*papers, *races]:
        [linked] = re.findall(r"\((docs/[^)#]+)", cells[0])
        page = (ROOT / linked).read_text(encoding="utf-8")
        if cells in papers:
            reported, trained = cells.pop(2), cells[-1]
            both = (f"| {reported} |", f"recall@1 {trained}")
            assert any(all(each in line for each in both) for line in reproduced), cells
            row = re.search(r"--row (\w+)", cells[0])[1]
            line = next(x for x in page.splitlines() if x.startswith(f"| `{row}` | distance"))
            assert f"| {cells[-2]} | {trained} |" in line, cells
        for figure in re.findall(r"\d\d\.\d(?: ± \d\.\d)?", " ".join(cells)):
            assert f" {figure} " in page, (cells[0], figure)
            checked += 1
    assert checked > 18, checked


def test_the_readme_counts_the_comparisons_as_their_page():
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    page = (ROOT / "docs" / "results" / "peers.md").read_text(encoding="utf-8")
    counted = r"Of the (\d+) rows, tfdml takes less time in (\d+) and less memory in (\d+)\."
    objectives, scores = re.findall(counted, page)
    rows, faster, smaller = zip(objectives, scores, strict=True)
    times = f"{faster[0]} of {rows[0]} comparisons of objectives and {faster[1]} of {rows[1]} of"
    memory = f"and less memory in {smaller[0]} and in {smaller[1]}."
    assert f"less time in {times} scores, {memory}" in readme


def test_settings_of_a_run_tell_whether_files_are_given_and_not_which():
    digests = [
        settings_digest(Recipe(data_dir=folder, weights=weights))
        for folder, weights in (("a", "c"), ("b", "d"), ("a", None))
    ]
    assert digests[0] == digests[1] != digests[2]
