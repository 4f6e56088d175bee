"""Runs a table of experiments: searches, trains, scores, and compares its rows.

    python -m tfdml.experiment recipes/omniglot/experiment.yaml --data_dir tensorflow_datasets

Rows with ranges are searched on folds of the training classes; then each row trains on all of them
with every seed, and its unseen classes are scored. What is done is not repeated, also after a stop;
results of changed settings are not mixed with others. Writes results.csv, table.md and results.png
to runs/NAME/, named after the table and its folder.
"""

import argparse
import pathlib

from tfdml.checks import check_keras
from tfdml.command_line import one_sentence
from tfdml.experiment import pages
from tfdml.experiment.results import RESULTS, write_results
from tfdml.experiment.running import done, ends, run, trainings
from tfdml.experiment.trainings import PROGRAM, Row, check_scores, recipe_of
from tfdml.files import check_writable, write_text
from tfdml.quiet import keep_printing
from tfdml.runs.folders import RUNS, SAVED_MODELS
from tfdml.runs.prepared import check_files, check_model
from tfdml.runs.table import changes_of, read_table

PLAN = "plan.txt"


def main(arguments=None):
    keep_printing()
    given = parse(arguments)
    errors = ValueError, TypeError, OSError, ImportError, RuntimeError
    with one_sentence(PROGRAM, *errors, stopped="stopped; the same command goes on"):
        check_keras()
        words = given.set + ([f"data_dir={given.data_dir}"] if given.data_dir else [])
        table = read_table(given.table, changes_of(words))
        for name in given.row:
            table.check_row(name)
        if given.page:
            pages.write_page(given.page, [given.table, *words], table)
            return
        folder = RUNS / table.name
        check_writable(folder, SAVED_MODELS)
        every = [Row(table, name) for name in table.rows]
        rows = [row for row in every if row.name in given.row or not given.row]
        check_rows(rows)
        plan = plan_of(rows)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / PLAN, f"{plan}\n")  # rejects a full disk
        print(plan)
        failures = run(rows, given.jobs)
        print(f"\n{write_results(table, every)}\nResults: {folder / RESULTS}")
        if failures:
            raise RuntimeError("; ".join(failures))


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", help="YAML file of experiments")
    parser.add_argument("--row", nargs="+", default=[], help="names of rows; default: all")
    parser.add_argument("--jobs", type=int, default=1, help="rows at once; default: 1")
    parser.add_argument("--data_dir", help="that of all rows")
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="settings of all rows, such as steps=100, or of the table, such as seeds='[0]'",
    )
    parser.add_argument(
        "--page",
        type=pathlib.Path,
        help="train nothing: write the tables of a page, of the results kept beside it",
    )
    given = parser.parse_args(arguments)
    if given.jobs < 1:
        parser.error(f"--jobs must be >= 1. Received: {given.jobs}")
    return given


def check_rows(rows):
    """Checks all that can be known of the rows, and of the ends of their ranges, in a minute."""
    for row in rows:
        check_scores(row.table, row.name)
        for changed in ends(row.ranges):
            recipe = recipe_of(row.table, row.name, changed)
            try:
                check_files(recipe)
                check_model(recipe)
            except (ValueError, TypeError, OSError) as error:
                where = "".join(f", {name} {value}" for name, value in changed.items())
                raise ValueError(f"{row.table.name}, row {row.name}{where}: {error}") from None


def plan_of(rows):
    """What is to be done, in a sentence."""
    table, count = rows[0].table, sum(map(trainings, rows))
    text = f"{table.name}: {len(rows)} rows × {len(table.seeds)} seeds"
    if any(row.ranges for row in rows):
        unit = "trials" if table.search.get("trials") else "minutes"
        text += f", after {table.search[unit]} {unit} of {table.folds} folds each"
    return f"{text}: {count} trainings, {sum(map(done, rows))} of them done"


if __name__ == "__main__":
    main()
