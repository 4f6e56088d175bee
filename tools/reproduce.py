"""Writes the tables of docs/reproduce.md and the header comments of the papers' recipes.

    python tools/reproduce.py
    python tools/reproduce.py --check

They are made from docs/reproduce.yaml (the rows), docs/reported.yaml (the papers' numbers), the
recipes and docs/results (the results of tfdml), so that every number has a single source. --check
writes nothing, and fails if a file would change.
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

from tfdml.files import read_text, write_text  # noqa: E402
from tfdml.quiet import keep_printing  # noqa: E402
from tfdml.runs.recipe import Recipe  # noqa: E402

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
    changed = {path: text for path, text in files().items() if read_text(ROOT / path) != text}
    if check and changed:
        parser.exit(1, f"to be written by python tools/reproduce.py: {', '.join(changed)}\n")
    for path, text in changed.items():
        write_text(ROOT / path, text)
        print(path)


def files():
    """{path in the repository: text} of all files to write."""
    content = yaml.safe_load(read_text(ROOT / "docs" / "reproduce.yaml"))
    reported = yaml.safe_load(read_text(ROOT / "docs" / "reported.yaml"))
    rows = [Row(row, table, reported) for table in content["tables"] for row in table["rows"]]
    written = {
        f"recipes/{name}.yaml": with_head(name, [row for row in rows if row.recipe == name])
        for name in dict.fromkeys(row.recipe for row in rows if row.recipe)
    }
    document = read_text(ROOT / DOCUMENT)
    before, _, rest = document.partition(BEGIN)
    after = rest.partition(END)[2]
    tables = "\n".join(table_of(table, rows, content) for table in content["tables"])
    written[DOCUMENT] = f"{before}{BEGIN}\n\n{tables}\n{END}{after}"
    return written


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
            run = row.get("run", settings_of(self.recipe).run)
            train = [f"python train.py --config recipes/{self.recipe}.yaml", row.get("train")]
            self.train = " ".join(filter(None, train))
            self.evaluate = " ".join(
                filter(None, [f"python evaluate.py saved_models/{run}", *flags])
            )


@functools.cache
def settings_of(name):
    """The `Recipe` of a name such as `pddm/cub200_quadruplet`."""
    return Recipe(**yaml.safe_load(read_text(ROOT / "recipes" / f"{name}.yaml")))


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


def with_head(name, rows):
    """The text of a recipe, with new comments before its first empty line."""
    text = read_text(ROOT / "recipes" / f"{name}.yaml")
    if text.startswith("# Rows of the papers:"):
        text = text.partition("\n\n")[2]
    lines = ["# Rows of the papers:", "#"]
    commands = dict.fromkeys((row.train, row.evaluate) for row in rows)
    for train, evaluate in commands:
        for row in rows:
            if (row.train, row.evaluate) == (train, evaluate):
                note = f" ({row.note})" if row.note else ""
                lines += wrapped(f"{row.table}, {row.name}{note}: {scores_of(row)}")
        lines += [f"#     {train}", f"#     {evaluate}", "#"]
    return "\n".join(lines[:-1]) + "\n\n" + text


def scores_of(row):
    """The numbers of the paper with their names, in words that `wrapped` keeps together."""
    if not row.scores:
        return "no number"
    pairs = zip(row.names, row.scores, strict=True)
    return ", ".join(f"{name} {shown(score)}".replace(" ", "\0") for name, score in pairs)


def wrapped(text):
    """Lines of a comment."""
    lines = textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="#   ")
    return [line.replace("\0", " ") for line in lines]


def shown(score):
    return "–" if score is None else str(score)


def table_of(table, rows, content):
    """A table of docs/reproduce.md."""
    rows = [row for row in rows if row.table == table["title"]]
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
    cells = measured(source["at"], source["section"], row.ours["row"], columns)
    link = pathlib.Path(source["at"]).relative_to("docs")
    values = ", ".join(f"{column} {cell}" for column, cell in zip(columns, cells, strict=True))
    return f"{values} ([{source['what']}]({link}))"


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
