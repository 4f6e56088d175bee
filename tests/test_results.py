"""Tables of docs/results have the figures of the kept scores, which are of today's recipes."""

import importlib
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
COLUMN = re.compile(r"untrained|R@(?P<k>\d+)|NMI|F1|runs")


@pytest.fixture
def run(monkeypatch):
    """The module of recipes/run.py."""
    monkeypatch.syspath_prepend(ROOT / "recipes")
    return importlib.import_module("run")


@pytest.fixture
def scores(run):
    """The module of recipes/scores.py."""
    return run.scores


def kept_tables():
    """(page, path of the scores, seeds, cells) of each table below a command with kept scores."""
    for page in pages.pages():
        lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
        for block in pages.blocks(page):
            kept = re.search(
                r"--scores (docs/results/\S+_(?:claims|search|papers)\.csv)", block.code
            )
            if kept:
                below = lines[block.line + block.code.count("\n") + 1 :]
                start = next(i for i, line in enumerate(below) if line.startswith("|"))
                rows = []
                for line in below[start:]:
                    if not line.startswith("|"):
                        break
                    rows.append([cell.strip() for cell in line.strip("|").split("|")])
                seeds = re.search(r"--seeds ([\d ]+)", block.code)
                yield page, kept[1], seeds[1].split() if seeds else ["0", "1", "2"], rows


def ranked_by(title):
    for words, level in LEVELS.items():
        if words in title:
            return level
    return "similarity" if "score" in title else "distance"


def test_tables_have_the_figures_of_the_kept_scores(scores):
    checked = 0
    for page, path, seeds, (heads, _, *rows) in kept_tables():
        kept = [row for row in scores.read(ROOT / path) if str(row["seed"]) in seeds]
        assert {row["recipe"] for row in kept} == {
            cells[heads.index("recipe")].strip("`") for cells in rows
        }, page
        for cells in rows:
            by_head = dict(zip(heads, cells, strict=True))
            title, recipe = cells[0], by_head["recipe"].strip("`")
            of_row = [
                row
                for row in kept
                if (row["recipe"], row["ranked_by"]) == (recipe, ranked_by(title))
            ]
            for head in filter(COLUMN.fullmatch, heads):
                k = COLUMN.fullmatch(head)["k"]
                name = f"recall@{k}" if k else head.lower()
                cell = scores.cell(of_row, name, 100, 1)
                cell = str(len(of_row)) if head == "runs" else cell
                assert by_head[head] in (cell, cell.partition(" ±")[0], "–"), (page, title, head)
                checked += by_head[head] != "–"
    assert checked > 100, checked


def test_kept_scores_are_of_the_recipes_and_the_command_of_their_page(run, scores, monkeypatch):
    monkeypatch.chdir(ROOT)
    checked = set()
    for page in pages.pages():
        for block in pages.blocks(page):
            for command in pages.commands(block.code) if block.language == "bash" else ():
                if not re.match(r"python recipes/run\.py .*--scores docs/", command):
                    continue
                monkeypatch.setattr("sys.argv", command.split()[1:])
                arguments, settings = run.parse()
                kept = scores.read(arguments.scores)
                for recipe in arguments.folder.glob("*.yaml"):
                    digests = {row["settings"] for row in kept if row["recipe"] == recipe.stem}
                    digest = run.digest_of(recipe, settings, arguments.level_weights)
                    assert digests == {digest}, (page, recipe)
                checked.add(arguments.scores.stem)
    assert {"cub200_claims", "hdc_cars_claims", "pddm_cars_claims"} <= checked, checked


def test_settings_of_a_run_tell_whether_files_are_given_and_not_which(scores):
    digests = [
        scores.digest(Recipe(data_dir=folder, weights=weights), None)
        for folder, weights in (("a", "c"), ("b", "d"), ("a", None))
    ]
    assert digests[0] == digests[1] != digests[2]
