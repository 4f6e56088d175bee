"""A table of experiments: one YAML file of shared settings and rows, each a recipe."""

import dataclasses
import pathlib

from tfdml.checks import check, check_integer, check_options, check_type, unknown_name
from tfdml.command_line import from_yaml
from tfdml.files import read_text


@dataclasses.dataclass(frozen=True)
class Table:
    """What a file of experiments holds, as docs/experiments.md describes it.

    A row may have options of `evaluate.py`, `evaluate`, beside changes of the `settings`; a range
    is a list of choices, or {low, high, log, step}; `reported` are as in `tools/reported.py`.
    """

    name: str
    rows: dict
    settings: dict = dataclasses.field(default_factory=dict)
    search: dict | None = None
    folds: int = 3
    seeds: list = dataclasses.field(default_factory=lambda: [0, 1, 2])
    baseline: str | None = None
    score: list = dataclasses.field(default_factory=lambda: ["recall@1", "map@r"])
    evaluate: dict = dataclasses.field(default_factory=dict)
    reported: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for name in ("rows", "settings", "evaluate", "reported"):
            value = getattr(self, name)
            check_type(isinstance(value, dict), f"`{name}` must be names and values", given=value)
        check(self.rows, "`rows` must have one row or more", rows=self.rows)
        for name, changes in self.rows.items():
            check_type(isinstance(changes, dict), "a row must be its settings", **{name: changes})
        for name in ("seeds", "score"):
            values = getattr(self, name)
            check_type(isinstance(values, list), f"`{name}` must be a list", **{name: values})
            distinct = values and len(set(values)) == len(values)
            check(distinct, f"`{name}` must be one or more, which differ", **{name: values})
        check_integer(2, folds=self.folds)
        if self.baseline is not None:
            self.check_row(self.baseline)
        if self.search is not None:
            self.check_search(self.search)

    def check_row(self, row):
        if row not in self.rows:
            raise ValueError(unknown_name("row", row, self.rows))

    def check_search(self, search):
        check_type(isinstance(search, dict), "`search` must be names and values", search=search)
        check_options("`search`", search, ("trials", "minutes", "ranges", "rows"))
        budgets = [search.get(name) for name in ("trials", "minutes") if search.get(name)]
        numbers = len(budgets) == 1 and isinstance(budgets[0], int | float) and budgets[0] > 0
        check(numbers, "`search` must have `trials` or `minutes`, > 0", search=budgets)
        for row in search.get("rows") or {}:
            self.check_row(row)

    def ranges(self, row):
        """{setting: range} of the search of a row; none of one that the search leaves out."""
        search = self.search or {}
        own = (search.get("rows") or {}).get(row, {})
        return {} if own is None else {**(search.get("ranges") or {}), **own}

    def settings_of(self, row):
        """The settings of a row as those of a recipe, with the name of its run."""
        changes = {name: value for name, value in self.rows[row].items() if name != "evaluate"}
        return {**self.settings, "run": f"{self.name}_{row}", **changes}

    def evaluation_of(self, row):
        """{option of `evaluate.py`: value} of a row."""
        return {**self.evaluate, **self.rows[row].get("evaluate", {})}


def read_table(path, changes=None):
    """The `Table` of a file, with changes {name: value} of it or of the settings of all rows."""
    path = pathlib.Path(path).expanduser()
    text = read_text(path)
    try:
        content = from_yaml(text)
        check(is_table(content), "a table of experiments must have `rows`")
        return make_table(path, content, changes or {})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def changes_of(words):
    """{name: value} of words such as `steps=100`, whose values are YAML."""
    for word in words:
        check("=" in word, "a change must be name=value", change=word)
    pairs = [word.partition("=") for word in words]
    return {name: from_yaml(value) for name, _, value in pairs}


def is_table(content):
    return isinstance(content, dict) and "rows" in content


def make_table(path, content, changes=()):
    fields = [field.name for field in dataclasses.fields(Table) if field.name != "name"]
    check_options("a table", content, fields)
    name = "_".join([*path.resolve().parts[-2:-1], path.stem])
    own = {key for key in changes if key.partition(".")[0] in fields}
    content = changed(content, {key: changes[key] for key in own})
    table = Table(name, **{key: value for key, value in content.items() if value is not None})
    shared = {key: changes[key] for key in set(changes) - own}
    rows = {name: changed({**table.settings, **row}, shared) for name, row in table.rows.items()}
    return dataclasses.replace(table, rows=rows)


def changed(settings, changes):
    """The settings with changes, whose names may be those of options: `loss_options.margin`."""
    settings = dict(settings)
    for name, value in changes.items():
        name, _, option = name.partition(".")
        settings[name] = changed(settings.get(name) or {}, {option: value}) if option else value
    return settings
