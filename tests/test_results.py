"""Tables of docs/results have the figures of the kept scores, which are of today's recipes."""

import importlib
import itertools
import pathlib
import re

import pages
import pytest

from tfdml.runs.recipe import Recipe

ROOT = pathlib.Path(__file__).parents[1]
LEVELS = {
    words: f"level {level}"
    for level, exit in enumerate(("first exit", "second exit", "third exit"), 1)
    for words in (exit, f"HDC-{level}")
}
COLUMN = re.compile(r"untrained|R@(?P<k>\d+)|NMI|F1|level (?P<level>\d) alone|runs")


@pytest.fixture
def run(monkeypatch):
    """The module of recipes/run.py."""
    monkeypatch.syspath_prepend(ROOT / "recipes")
    return importlib.import_module("run")


@pytest.fixture
def scores(run):
    """The module of recipes/scores.py."""
    return run.scores


def kept_by(program, monkeypatch):
    """(page, what `program` parses, lines below) of its commands with scores kept in docs/."""
    monkeypatch.chdir(ROOT)
    for page in pages.pages():
        lines = page.read_text(encoding="utf-8").splitlines()
        for block in pages.blocks(page):
            for command in pages.commands(block.code) if block.language == "bash" else ():
                if re.match(rf"python recipes/{program.__name__}\.py .*--scores docs/", command):
                    monkeypatch.setattr("sys.argv", command.split()[1:])
                    below = lines[block.line + block.code.count("\n") + 1 :]
                    yield page, program.parse(), below


@pytest.fixture
def kept(run, monkeypatch):
    """(page, arguments, settings, lines below) of each command whose scores are kept in docs/."""
    found = [(page, *given, below) for page, given, below in kept_by(run, monkeypatch)]
    assert {
        "cub200_claims",
        "cub200_papers",
        "hdc_cars_claims",
        "hdc_cars_search",
        "pddm_cars_claims",
    } <= {arguments.scores.stem for _, arguments, _, _ in found}
    return found


def first_table(lines):
    """The cells of its rows, heads first."""
    from_it = itertools.dropwhile(lambda line: not line.startswith("|"), lines)
    rows = itertools.takewhile(lambda line: line.startswith("|"), from_it)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def ranked_by(title):
    for words, level in LEVELS.items():
        if words in title:
            return level
    return "similarity" if "score" in title else "distance"


def test_tables_have_the_figures_of_the_kept_scores(kept, scores):
    checked = 0
    for page, arguments, _, below in kept:
        rows = [row for row in scores.read(arguments.scores) if row["seed"] in arguments.seeds]
        heads, _, *lines = first_table(below)
        recipes = [cells[heads.index("recipe")].strip("`") for cells in lines]
        assert {row["recipe"] for row in rows} == set(recipes), page
        for recipe, cells in zip(recipes, lines, strict=True):
            for head, shown in zip(heads, cells, strict=True):
                column = COLUMN.fullmatch(head)
                if not column or shown == "–":
                    continue
                rank = f"level {column['level']}" if column["level"] else ranked_by(cells[0])
                of_row = [r for r in rows if (r["recipe"], r["ranked_by"]) == (recipe, rank)]
                k = column["k"] or (1 if column["level"] else None)
                cell = scores.cell(of_row, f"recall@{k}" if k else head.lower(), 100, 1)
                cell = str(len(of_row)) if head == "runs" else cell
                assert shown in (cell, cell.partition(" ±")[0]), (page, cells[0], head)
                checked += 1
    assert checked > 100, checked


def test_first_runs_are_the_kept_ones(run, scores, monkeypatch):
    first_run = importlib.import_module("first_run")
    kept = list(kept_by(first_run, monkeypatch))
    assert kept
    for _, given, below in kept:
        rows, columns = scores.read(given.scores), first_run.columns_of(given)
        heads, _, *lines = first_run.table_of(rows, columns, given).splitlines()
        assert len(lines) == len(first_run.NAMES)
        start = below.index(heads)
        assert below[start + 2 : start + 2 + len(lines)] == lines
        for column, loss in itertools.product(columns, given.losses):
            of = [row for row in rows if row["recipe"] == first_run.recipe_of(column, loss)]
            possible = (column[0], loss) not in first_run.IMPOSSIBLE
            for seed in given.seeds if possible else ():
                digest = first_run.digest_of(first_run.flags_of(column, loss, seed, given))
                assert [row["settings"] for row in of if row["seed"] == seed] == [digest]


def test_figures_of_the_readme_are_those_of_the_pages_that_it_links():
    _, results = (ROOT / "README.md").read_text(encoding="utf-8").split("## Results\n")
    _, _, *rows = first_table(results.splitlines())
    checked = 0
    for cells in rows:
        page = (ROOT / re.findall(r"\((docs/[^)#]+)", cells[0])[0]).read_text(encoding="utf-8")
        scores = [f" {cell} " for cell in cells[-2:] if cell != "–"]
        together = (all(score in line for score in scores) for line in page.splitlines())
        assert any(together), (cells[0], scores)
        for figure in re.findall(r"\d\d\.\d(?: ± \d\.\d)?", " ".join(cells)):
            assert f" {figure} " in page, (cells[0], figure)
            checked += 1
    assert checked > 20, checked


def test_the_readme_counts_the_comparisons_as_their_page():
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    page = (ROOT / "docs" / "results" / "peers.md").read_text(encoding="utf-8")
    counted = r"Of the (\d+) rows, tfdml takes less time in (\d+) and less memory in (\d+)\."
    (rows, faster, smaller), (scores, *of_scores) = re.findall(counted, page)
    times = f"{faster} of {rows} comparisons of objectives and {of_scores[0]} of {scores} of scores"
    assert f"less time in {times}, and less memory in {smaller} and in {of_scores[1]}." in readme


def test_kept_scores_are_of_the_recipes_and_the_command_of_their_page(kept, run, scores):
    for page, arguments, settings, _ in kept:
        rows = scores.read(arguments.scores)
        for recipe in arguments.folder.glob("*.yaml"):
            digests = {row["settings"] for row in rows if row["recipe"] == recipe.stem}
            asked = run.train.recipe_of(["--config", str(recipe), *settings])
            digest = scores.digest(asked, arguments.level_weights)
            assert digests == {digest}, (page, recipe)


def test_settings_of_a_run_tell_whether_files_are_given_and_not_which(scores):
    digests = [
        scores.digest(Recipe(data_dir=folder, weights=weights), None)
        for folder, weights in (("a", "c"), ("b", "d"), ("a", None))
    ]
    assert digests[0] == digests[1] != digests[2]
