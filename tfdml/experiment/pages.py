"""Pages whose tables are made of the results that are kept beside them, as CSV."""

import re

from tfdml.checks import check
from tfdml.experiment import results
from tfdml.experiment.trainings import Row
from tfdml.files import read_text, write_text
from tfdml.runs.folders import RUNS
from tfdml.runs.table import changes_of, read_table

END = "<!-- end of the results -->"
PLACE = re.compile(rf"^<!-- results: (\S+)([^\n]*) -->\n(.*?)^{END}$", re.MULTILINE | re.DOTALL)


def write_page(page, place, table):
    """Keeps the results of a table beside a page, which it may begin, and writes its tables."""
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
    place = f"<!-- results: {found[1]}{found[2]} -->\n"
    return "\n".join([place, results.table_of(table, lines), END])
