"""A row of a table is a recipe of train.py."""

import programs
import pytest

from tfdml.programs import train
from tfdml.runs.recipe_flags import recipe_of
from tfdml.runs.table import read_table

TABLE = """\
settings: {dataset: digits, classes_per_batch: 5, loss_options: {margin: 0.3}}
rows:
  a: {loss: triplet}
  b: {loss: contrastive, loss_options: {margin: 1.0}, steps: 7, evaluate: {nmi: true}}
seeds: [3, 4]
"""


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "some" / "digits.yaml"
    path.parent.mkdir()
    path.write_text(TABLE)
    return path


def test_a_row_has_the_settings_of_its_table_and_its_own(table):
    a, b = (recipe_of(["--config", str(table), "--row", row]) for row in "ab")
    assert (a.loss, a.loss_options, a.classes_per_batch) == ("triplet", {"margin": 0.3}, 5)
    assert (b.loss, b.loss_options, b.steps) == ("contrastive", {"margin": 1.0}, 7)
    assert (a.run, b.run) == ("some_digits_a", "some_digits_b")


def test_flags_win_over_the_row(table):
    recipe = recipe_of(["--steps", "9", "--row", "b", "--config", str(table), "--run", "x"])
    assert (recipe.steps, recipe.run) == (7, "x")
    recipe = recipe_of(["--row", "b", "--config", str(table), "--steps", "9"])
    assert recipe.steps == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "{}"], "digits.yaml: a table of rows: choose one, --row a or b"),
        (["--config", "{}", "--row", "c"], "Unknown row 'c'. Available: a, b."),
        (["--row", "a"], "--row chooses a row of a table: give --config TABLE"),
    ],
)
def test_a_row_that_is_not_there_is_rejected(arguments, message, table, tmp_path):
    arguments = [word.format(table) for word in arguments]
    assert message in programs.run(train.main, *arguments, cwd=tmp_path).sentence


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        ("loss: lifted", {}, "a table of experiments must have `rows`"),
        ("rows: {a: {}}\nseed: [1]", {}, "a table has no option 'seed'. Did you mean 'seeds'?"),
        ("rows: {}", {}, "`rows` must have one row or more"),
        ("rows: {a: 3}", {}, "a row must be its settings"),
        ("rows: {a: {}}", {"seeds": [1, 1]}, "`seeds` must be one or more, which differ"),
        ("rows: {a: {}}", {"baseline": "b"}, "Unknown row 'b'"),
        ("rows: {a: {}}\nsearch: {ranges: {}}", {}, "`search` must have `trials` or `minutes`"),
        ("rows: {a: {}}\nsearch: {trial: 3}", {}, "Did you mean 'trials'?"),
        ("rows: {a: {}}\nsearch: {trials: 3, rows: {b: {}}}", {}, "Unknown row 'b'"),
        ("rows: [", {}, "table.yaml: while parsing"),
    ],
)
def test_a_wrong_table_is_rejected_in_a_sentence(text, changes, message, tmp_path):
    path = tmp_path / "table.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"table\.yaml: ") as rejected:
        read_table(path, changes)
    assert message in str(rejected.value)


def test_changes_are_of_the_table_or_of_the_settings_of_every_row(table):
    changes = {"seeds": [0], "steps": 2, "loss_options.margin": 0.5}
    table.write_text(TABLE.replace("margin: 0.3", "margin: 0.3, squared: true"))
    changed = read_table(table, changes)
    assert changed.seeds == [0]
    assert [changed.settings_of(row)["steps"] for row in "ab"] == [2, 2]
    options = [changed.settings_of(row)["loss_options"] for row in "ab"]
    assert options == [{"margin": 0.5, "squared": True}, {"margin": 0.5}]
    assert changed.evaluation_of("b") == {"nmi": True}
