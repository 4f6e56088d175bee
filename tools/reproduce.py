"""Writes the tables of docs/reproduce.md.

    python tools/reproduce.py
    python tools/reproduce.py --check

They are made from docs/reproduce.yaml (the rows), docs/reported.yaml (the papers' numbers), the
recipes and docs/results (the results of tfdml), so that every number has a single source. --check
writes nothing, and fails if the page would change.
"""

import argparse
import functools
import pathlib
import re
import sys
import textwrap

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tfdml.experiments import results  # noqa: E402
from tfdml.files import read_text, write_text  # noqa: E402
from tfdml.quiet import keep_printing  # noqa: E402
from tfdml.runs.recipe import Recipe  # noqa: E402
from tfdml.runs.table import read_table  # noqa: E402

DOCUMENT = "docs/reproduce.md"
BEGIN, END = "<!-- Tables: python tools/reproduce.py -->", "<!-- End of the tables. -->"
NOT_RUN = "not run: needs the data and a GPU"
WIDTH = 100


def main(arguments=None):
    keep_printing()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    check = parser.parse_args(arguments).check
    path, text = ROOT / DOCUMENT, page()
    if text == read_text(path):
        return
    if check:
        parser.exit(1, f"to be written by python tools/reproduce.py: {DOCUMENT}\n")
    write_text(path, text)
    print(DOCUMENT)


def page():
    """The text of the page, with today's tables."""
    content = yaml.safe_load(read_text(ROOT / "docs" / "reproduce.yaml"))
    reported = yaml.safe_load(read_text(ROOT / "docs" / "reported.yaml"))
    before, _, rest = read_text(ROOT / DOCUMENT).partition(BEGIN)
    tables = "\n".join(table_of(table, reported, content) for table in content["tables"])
    return f"{before}{BEGIN}\n\n{tables}\n{END}{rest.partition(END)[2]}"


class Row:
    """A row of a paper's table.

    Args:
        row: Of docs/reproduce.yaml.
        table: Its table in docs/reproduce.yaml.
        reported: Content of docs/reported.yaml.
    """

    def __init__(self, row, table, reported):
        self.table, self.name, self.note = table["title"], row["name"], row.get("note")
        self.recipe, self.reason, self.ours = row.get("recipe"), row.get("without"), row.get("ours")
        self.names = row.get("scores", table["scores"])
        self.scores = numbers(reported, row["reported"]) if "reported" in row else []
        if self.scores and len(self.scores) != len(self.names):
            raise ValueError(
                f"{self.table}, {self.name}: there must be as many names of scores as "
                f"numbers. Received: names={self.names}, numbers={self.scores}"
            )
        if self.recipe:
            flags = [row.get("evaluate"), table.get("evaluate")]
            paper, name = self.recipe.split("/")
            run = row.get("run", settings_of(self.recipe).run)
            config = f"python train.py --config recipes/{paper}/papers.yaml --row {name}"
            train = [config, row.get("train")]
            self.train = " ".join(filter(None, train))
            self.evaluate = " ".join(
                filter(None, [f"python evaluate.py saved_models/{run}", *flags])
            )


@functools.cache
def settings_of(recipe):
    """The `Recipe` of a table and its row, such as `pddm/cub200_quadruplet`."""
    paper, row = recipe.split("/")
    return Recipe(**read_table(ROOT / "recipes" / paper / "papers.yaml").settings_of(row))


def numbers(reported, path):
    """The numbers at a place of docs/reported.yaml, such as `hdc_table5_sop.hdc_384`.

    For a table whose columns are methods, the place ends with a method; for a row with recall and
    statistics of distances, all numbers are returned in order.

    Raises:
        KeyError: If there is no such place.
    """
    table, *places = path.split(".")
    found = reported[table]
    methods = found.get("methods")
    if methods:
        section, method = places
        return [values[methods.index(method)] for values in found[section].values()]
    for place in places:
        found = found[int(place)] if isinstance(found, list) else found[place]
    if isinstance(found, dict):
        recall, *others = found.values()
        return [*recall, *others]
    return found if isinstance(found, list) else [found]


def shown(score):
    return "–" if score is None else str(score)


def table_of(table, reported, content):
    """A table of docs/reproduce.md."""
    rows = [Row(row, table, reported) for row in table["rows"]]
    heads = ["row", *table["scores"], "commands", "hours", "here"]
    lines = [f"### {table['title']}", ""]
    lines += [*textwrap.wrap(table["note"], WIDTH), ""] if "note" in table else []
    lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        scores = row.scores or [None] * len(row.names)
        name = f"{row.name} ({row.note})" if row.note else row.name
        if row.reason:
            last = ["–", "–", row.reason]
        else:
            last = [commands_of(row), hours_of(row, content), here(row, content)]
        lines.append(f"| {' | '.join([name, *map(shown, scores), *last])} |")
    return "\n".join(lines) + "\n"


def commands_of(row):
    return f"`{row.train}`<br>`{row.evaluate}`"


def hours_of(row, content):
    """Hours of the training on one core, from the measured step of a similar network."""
    settings = settings_of(row.recipe)
    if not settings.steps:
        return "0"
    for name, seconds in content["seconds_per_step"].items():
        if cost_of(settings_of(name)) == cost_of(settings):
            return f"{seconds * settings.steps / 3600:,.0f}"
    raise KeyError(f"no recipe like {row.recipe} was timed: {cost_of(settings)}")


def cost_of(recipe):
    """The settings that determine the time of a step."""
    batch = recipe.classes_per_batch * recipe.images_per_class
    return recipe.backbone, recipe.image_size, batch, recipe.loss == "hdc"


def here(row, content):
    """Our own results, read from docs/results, with a link to their settings."""
    if not row.ours:
        return NOT_RUN
    source = content["measured"][row.ours["of"]]
    columns = row.ours.get("columns", source["columns"])
    if "kept" in source:
        cells = kept(source["kept"], row.ours, columns)
    else:
        cells = measured(source["at"], source["section"], row.ours["row"], columns)
    link = pathlib.Path(source["at"]).relative_to("docs")
    values = ", ".join(f"{column} {cell}" for column, cell in zip(columns, cells, strict=True))
    return f"{values} ([{source['what']}]({link}))"


def kept(path, ours, columns):
    """Means of a row over the seeds, from a CSV file of results."""
    wanted = ours["row"], ours.get("ranked_by", "distance")
    lines = [x for x in results.read(ROOT / path) if (x["row"], x["ranked_by"]) == wanted]
    if not lines:
        raise KeyError(f"{path}: no row {wanted}")
    return [results.mean(lines, column) for column in columns]


def measured(path, section, first, columns):
    """Cells of the line of a table that begins with `first`, under a heading of a document.

    Raises:
        KeyError: If there is none.
    """
    text = re.split(r"^## ", read_text(ROOT / path), flags=re.MULTILINE)
    part = next(part for part in text if part.partition("\n")[0] == section)
    lines = [cells_of(line) for line in part.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        if line[0] == first:
            return [line[lines[0].index(column)] for column in columns]
    raise KeyError(f"{path}, {section}: no line {first!r}")


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


if __name__ == "__main__":
    main()
