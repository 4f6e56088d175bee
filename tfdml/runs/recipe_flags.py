"""From the flags of `train.py` to a recipe, without TensorFlow, Keras and NumPy."""

import argparse
import dataclasses
import functools
import pathlib
import sys

import pipelines
from tfdml.checks import unknown_name
from tfdml.command_line import Parser, as_yaml, from_yaml, one_sentence, program_name
from tfdml.losses import LOSSES
from tfdml.models import BACKBONES
from tfdml.runs import folders
from tfdml.runs.devices import HELP, find_devices
from tfdml.runs.recipe import FEATURES, Recipe
from tfdml.runs.table import changed, is_table, make_table

PROGRAM = program_name("train")
DESCRIPTION = "Trains an embedder, scores it on unseen classes and exports it for TF Serving."


class RecipeParser(Parser):
    """A parser of recipes, which takes a row of a table too: `--config TABLE --row NAME`."""

    _row = None

    def parse_args(self, args=None, namespace=None, **kwargs):
        """As `Parser.parse_args`."""
        own = argparse.ArgumentParser(self.prog, add_help=False, allow_abbrev=False)
        own.add_argument("--row")
        self._row = own.parse_known_args(sys.argv[1:] if args is None else args)[0].row
        given = super().parse_args(args, namespace, **kwargs)
        if self._row is not None and not given.config:
            self.error("--row chooses a row of a table: give --config TABLE")
        return given

    def settings_in(self, path, text):
        """The YAML of a recipe; of a table, that of the row."""
        content = from_yaml(text)
        if not is_table(content):
            return text
        table = make_table(pathlib.Path(path), content)
        if self._row is None:
            raise ValueError(f"a table of rows: choose one, --row {' or '.join(table.rows)}")
        table.check_row(self._row)
        return as_yaml(table.settings_of(self._row))

    def recipe_of_row(self, table, row, changes=()):
        """The recipe of a row with changes of its settings."""
        settings = changed(table.settings_of(row), dict(changes))
        self._file = self._last_file = f"{table.name}, row {row}"
        try:
            return self.recipe_in(self.parse_string(as_yaml(settings)))
        finally:
            self._file = self._last_file = None

    def recipe_in(self, given):
        """The recipe of parsed flags; exits with code 2 if it names what there is not."""
        recipe = self.settings_of(given)
        for kind, name, available in (
            ("loss", recipe.loss, LOSSES),
            ("dataset", pipelines.entry_of(recipe.dataset), pipelines.names()),
            ("backbone", recipe.backbone, [*BACKBONES, "hub:PRESET"]),
        ):
            own = kind == "backbone" and ":" in name
            own |= kind == "dataset" and name.startswith(FEATURES)
            if name not in available and not own:
                self.error(unknown_name(kind, name, available))
        return recipe


@functools.cache
def recipe_parser(program=PROGRAM):
    names = {"losses": sorted(LOSSES), "datasets": pipelines.names(), "backbones": BACKBONES}
    parser = RecipeParser(Recipe, names, DESCRIPTION, prog=program)
    explained = "YAML file of settings, or with --row of a table; flags win."
    parser.add_argument("--config", action="config", help=explained)
    parser.add_argument("--row", type=str, help="Name of a row of the table of --config.")
    explained = "Go on with the run named by --run after a stop, or train it for more --steps."
    parser.add_argument("--resume", action="store_true", help=explained)
    parser.add_argument("--devices", type=str, help=HELP)
    return parser


def recipe_of(flags):
    """The recipe of flags, whatever runs there are; exits with code 2 if they are wrong."""
    parser = recipe_parser()
    return parser.recipe_in(parser.parse_args(flags))


def parse(arguments):
    """The recipe, whether it resumes, and its devices; exits with code 2 if it cannot be run."""
    with one_sentence(PROGRAM, ValueError):
        parser = recipe_parser()
        given = parser.parse_args(arguments)
        devices = find_devices().named(given.devices)
        if given.resume:
            return _resumed(parser, given.run, arguments), True, devices
        recipe = parser.recipe_in(given)
        if recipe.run is None:
            what = "frozen" if recipe.tune == "frozen" else recipe.loss
            name = folders.free_name(f"{recipe.dataset}_{what}")
            recipe = dataclasses.replace(recipe, run=name)
        elif devices.is_chief and folders.is_taken(recipe.run):
            parser.error(f"run {recipe.run!r} exists. Choose another --run, or go on with --resume")
        return recipe, False, devices


def _resumed(parser, run, arguments):
    """The recipe of a run that stopped, which the arguments must not change."""
    if not run:
        parser.error("--resume needs --run NAME")
    saved = folders.RUNS / run / "config.yaml"
    if not saved.is_file():
        parser.error(f"--resume needs --run NAME of a run that exists. Found no {saved}")
    before = parser.recipe_in(parser.parse_args(["--config", str(saved)]))
    recipe = parser.recipe_in(parser.parse_args(["--config", str(saved), *arguments]))
    # As with other settings, those of the run hold for options of the loss that are not given.
    options = {**before.loss_options, **recipe.loss_options}
    recipe = dataclasses.replace(recipe, loss_options=options)
    for name, value in dataclasses.asdict(recipe).items():
        was = getattr(before, name)
        if value != was and not (name == "steps" and value > was):
            parser.error(
                f"--{name} differs from the run's: {value!r}, was {was!r}. A run goes on as it "
                "began, or for more --steps; start a new one for other settings"
            )
    return recipe
