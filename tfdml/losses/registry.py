"""Builds losses by their names, under which their classes register themselves."""

import inspect
from typing import Any

import keras

from tfdml import losses
from tfdml.checks import check, check_type, unknown_name
from tfdml.losses.base import ENTRIES, MetricLoss
from tfdml.losses.index import LOSSES, REGULARIZERS, check_names, check_preset


def options_of(loss):
    """{option: [default]} of a class; an empty list for an option that must be given."""
    parameters = inspect.signature(loss).parameters.values()
    return {each.name: [each.default][: each.default is not each.empty] for each in parameters}


def get(name, /, *, preset=None, **options) -> Any:
    """Builds a loss by its name in `LOSSES`, or from a Keras config.

    Args:
        name: A key of `LOSSES`, such as `"lifted"`; or a dict of a name and options, `{"name":
            "lifted", "margin": 0.5}`; or a Keras config; or a loss, which is returned.
        preset: None for the defaults, or `"published"` for the options of the paper, for losses in
            `PUBLISHED`.
        **options: Options of that loss; a dict is merged into the dict that the name or the preset
            implies, unless it has a `"name"`.

    Returns:
        A `MetricLoss`.

    Raises:
        ValueError: If the name, an option or its value is unknown; the message lists the known.
    """
    if isinstance(name, dict) or hasattr(name, "get_config"):
        expectation = "options go with the name of a loss, not with a loss or a config"
        alone = not options and preset is None
        check(alone, expectation, options=sorted(options), preset=preset)
        return resolve(loss=name) if isinstance(name, dict) else name
    return _build("loss", LOSSES, name, preset, options)


def get_regularizer(name, /, **options) -> Any:
    """As `get`, for `REGULARIZERS`."""
    return _build("regularizer", REGULARIZERS, name, None, options)


def resolve(build=get, /, **received) -> Any:
    """The loss that an argument names: itself, its name, a dict of that and options, a config."""
    ((argument, given),) = received.items()
    if isinstance(given, MetricLoss):
        return given
    expectation = f"`{argument}` must be a MetricLoss, a name, or a dict of a name and options"
    check_type(isinstance(given, (str, dict)), expectation, **received)
    if "class_name" in given and isinstance(given, dict):
        return keras.losses.get(given)
    options = {"name": given} if isinstance(given, str) else dict(given)
    is_named = isinstance(options.get("name"), str) and all(isinstance(key, str) for key in options)
    check(is_named, f"`{argument}` must have a name among its options", **received)
    return build(options.pop("name"), **options)


def _build(kind, index, name, preset, options):
    if name not in ENTRIES[kind]:
        if not isinstance(name, str) or name not in index:
            raise ValueError(unknown_name(kind, name, index))
        getattr(losses, index[name])  # imports the module, where the class registers itself
    entry = ENTRIES[kind][name]
    check_preset(name, preset, bool(entry.published))
    settings = dict(entry.implied)
    for given in (entry.published if preset else {}, options):
        for option, value in given.items():
            adds = isinstance(value, dict) and isinstance(settings.get(option), dict)
            # A named part takes the place of another; the name of a similarity is its layer's.
            adds = adds and ("name" not in value or option == "similarity")
            settings[option] = {**settings[option], **value} if adds else value
    check_names(f"{kind} {name!r}", settings, options_of(entry.loss))
    return entry.loss(name=name, **settings)
