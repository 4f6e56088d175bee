"""Writes the tables of papers into a page, with the commands of each row and what was found here.

    python tools/reported.py docs/reproduce.md

`reported` of a table of experiments lists them. A page says between which lines they stand:

    <!-- reported: recipes/cub200/papers.yaml -->
    <!-- end of the reported -->
"""

import functools
import os
import pathlib
import re
import sys
import textwrap

from tfdml.checks import check
from tfdml.experiment import results
from tfdml.files import read_text, write_text
from tfdml.runs.recipe import Recipe
from tfdml.runs.table import read_table

END = "<!-- end of the reported -->"
PLACE = re.compile(rf"^<!-- reported: (\S+) -->\n.*?^{END}$", re.MULTILINE | re.DOTALL)
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


def with_tables(page, text):
    """The text of a page, with the tables of all its places."""

    def with_table(found):
        tables = reported_tables(page, found[1], read_table(found[1]))
        return f"<!-- reported: {found[1]} -->\n\n{tables}\n{END}"

    return PLACE.sub(with_table, text)


if __name__ == "__main__":
    for page in map(pathlib.Path, sys.argv[1:]):
        write_text(page, with_tables(page, read_text(page)))
