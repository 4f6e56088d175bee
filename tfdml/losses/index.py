"""The losses by name, for programs that do not import Keras.

`index.json` repeats what `register` states beside each class; `tests/tfdml/losses/test_index.py`
compares them, and writes the file anew when it is run as a program.
"""

import json
import pathlib

from tfdml.checks import check, check_options

_INDEX = json.loads(pathlib.Path(__file__).with_name("index.json").read_text(encoding="utf-8"))
# Name of `--loss` and `get` -> class; the same for regularizers, for `RegularizedLoss`.
LOSSES = {name: entry["class"] for name, entry in _INDEX["loss"].items()}
REGULARIZERS = {name: entry["class"] for name, entry in _INDEX["regularizer"].items()}
# Options that the name implies.
IMPLIED = {name: entry["implied"] for name, entry in _INDEX["loss"].items()}
# Published options, for losses with different defaults: `get(name, preset="published")`.
PUBLISHED = {name: e["published"] for name, e in _INDEX["loss"].items() if e["published"]}


def check_loss(name, options):
    """Raises the errors of `get` for the names of options of a loss, without importing Keras."""
    options = {**options}
    check_preset(name, options.pop("preset", None), name in PUBLISHED)
    given = {**IMPLIED[name], **options}
    check_names(f"loss {name!r}", given, _INDEX["loss"][name]["options"])


def check_preset(name, preset, is_published):
    """Raises a ValueError unless the preset is None, or published where the loss has that."""
    expectation = f"`preset` must be None, or 'published' for one of {', '.join(PUBLISHED)}"
    known = preset is None or (preset == "published" and is_published)
    check(known, expectation, preset=preset, loss=name)


def check_names(owner, given, options):
    """Checks the names of options against {name: [default]}, without one if it must be given."""
    check_options(owner, given, set(options) - {"name"})  # given by the owner's name itself
    for option, default in options.items():
        if not default and option not in given:
            raise ValueError(f"{owner} requires the option {option!r}.")
