"""Pages whose tables are made of the results that are kept beside them, as CSV."""

import functools
import os
import pathlib
import re
import textwrap

from tfdml.checks import check
from tfdml.experiment import results
from tfdml.experiment.trainings import Row
from tfdml.files import read_text, write_text
from tfdml.runs.folders import RUNS
from tfdml.runs.recipe import Recipe
from tfdml.runs.table import changes_of, read_table

END = "<!-- end of the results -->"
PLACE = re.compile(rf"^<!-- results: (\S+)([^\n]*) -->\n(.*?)^{END}$", re.MULTILINE | re.DOTALL)


def write_page(page, place, table):
    """Keeps the results of a table beside a page, and writes the tables of all results in it.

    A page says between which lines they stand, and the settings that were given for all rows:

        <!-- results: recipes/cub200/claims.yaml weights=googlenet.npz -->
        <!-- end of the results -->

    A page is begun, with those of the `place`, if there is none.
    """
    begun = f"# {table.name}\n\n<!-- results: {' '.join(place)} -->\n{END}\n"
    text = read_text(page) if page.exists() else begun
    expectation = f"{page} must have a line `<!-- results: TABLE -->` and later `{END}`"
    check(PLACE.search(text), expectation)
    made = results.read(RUNS / table.name / results.RESULTS)
    if made:
        path, digests = kept_at(page, table), {line["digest"] for line in made}
        others = [line for line in results.read(path) if line["digest"] not in digests]
        results.write(path, others + made)
    write_text(page, with_tables(page, text))


def with_tables(page, text):
    """The text of a page, with the tables of the results that are kept beside it."""
    return PLACE.sub(lambda found: _with_table(page, found), text)


def kept_at(page, table):
    return page.parent / f"{table.name}.csv"


def tables_of(text):
    """The `Table` of each place for results in the text of a page."""
    for path, words, _ in PLACE.findall(text):
        yield read_table(path, changes_of(words.split()))


def own_lines(table, lines):
    """The lines that are of the settings which the rows of a table have today."""
    digests = {row: Row(table, row).digest for row in table.rows}
    return [line for line in lines if digests.get(line["row"]) == line["digest"]]


def _with_table(page, found):
    [table] = tables_of(found[0])
    lines = own_lines(table, results.read(kept_at(page, table)))
    parts = [reported_tables(page, found[1], table)] if table.reported else []
    if lines or not parts:
        parts.append(results.table_of(table, lines))
    return "\n".join([f"<!-- results: {found[1]}{found[2]} -->\n", *parts, END])


NOT_RUN = "not run: needs the data and a GPU"
WIDTH = 100


def reported_tables(page, path, table):
    """Markdown of the tables of papers that `reported` of a table lists.

    A row has the figures `reported` for the `scores`, in percent unless it says otherwise. It is a
    row of this table or of another `table`, of which a step takes so many `seconds` on a core of a
    CPU (benchmarks/training_step.py), or says `without` what it has no recipe. `here` names what
    on the page `at` was `measured`: what was `found`, or the row of a CSV file that was `kept`.
    """
    read, parts = functools.cache(read_table), []
    for listed in table.reported["tables"]:
        rows = [["row", *listed["scores"], "commands", "hours", "here"]]
        for row in listed["rows"]:
            cells = ["–", "–", row.get("without")]
            if "row" in row:
                recipe = row.get("table", path)
                settings = Recipe(**read(recipe).settings_of(row["row"]))
                hours = row.get("seconds", 0) * settings.steps / 3600
                found = _here(page, row.get("here"), table.reported)
                cells = [_commands(row, recipe, settings.run, listed), f"{hours:,.0f}", found]
            rows.append([*_figures(row, listed), *cells])
        parts += [f"### {listed['title']}", ""]
        if "note" in listed:
            parts += [*textwrap.wrap(listed["note"], WIDTH), ""]
        parts.append(results.markdown(rows))
    return "\n".join(parts)


def _figures(row, listed):
    figures = row.get("reported", [None] * len(listed["scores"]))
    agree = len(figures) == len(listed["scores"])
    check(agree, f"{listed['title']}: a row must have a figure for each score", row=row["name"])
    name = f"{row['name']} ({row['note']})" if "note" in row else row["name"]
    return [name, *("–" if figure is None else str(figure) for figure in figures)]


def _commands(row, recipe, run, listed):
    train = f"python train.py --config {recipe} --row {row['row']}", row.get("train")
    evaluate = f"python evaluate.py saved_models/{row.get('run', run)}", row.get("evaluate")
    both = train, (*evaluate, listed.get("evaluate"))
    return "<br>".join(f"`{' '.join(filter(None, words))}`" for words in both)


def _here(page, here, reported):
    """What was found here, with a link to the page that says how."""
    if here is None:
        return NOT_RUN
    source = {**reported["measured"][here["of"]], **here}
    found = here.get("found") or _kept(source)
    return f"{found} ([{source['what']}]({os.path.relpath(source['at'], page.parent)}))"


def _kept(source):
    """Means of a row over the seeds, from a CSV file of results."""
    wanted = source["row"], source.get("ranked_by", "distance")
    lines = results.read(pathlib.Path(source["kept"]))
    lines = [line for line in lines if (line["row"], line["ranked_by"]) == wanted]
    check(lines, f"{source['kept']} must have the row", row=wanted)
    return ", ".join(f"{name} {results.mean(lines, name)}" for name in source["columns"])
