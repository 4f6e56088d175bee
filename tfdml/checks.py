"""Argument checks, whose errors state what must hold and what was received."""

import contextlib
import difflib
import importlib.util
import json
import math
import numbers
import os
import pathlib
import sys
from collections.abc import Iterable

_BACKENDS = ("tensorflow", "jax", "torch")
_OF_KERAS = {
    "floatx": ("float32", "float64"),
    "image_data_format": ("channels_last",),
    "backend": ("tensorflow",),
}


class Bare(str):
    """Text that an error message shows without quotes."""

    __repr__ = str.__str__


def check(holds, expectation, **received):
    """Raises a ValueError: "`margin` must be > 0. Received: margin=-1.0"."""
    if not holds:
        raise ValueError(f"{expectation}. {_received(received)}")


def check_type(holds, expectation, **received):
    """Like `check`, for a wrong type or dtype: raises a TypeError."""
    if not holds:
        raise TypeError(f"{expectation}. {_received(received)}")


def check_shapes(holds, expectation, **arrays):
    """Like `check`; states the shapes of arrays or tensors: `rows.shape=(3,)`."""
    check(holds, expectation, **{f"{name}.shape": tuple(a.shape) for name, a in arrays.items()})


def check_number(**values):
    """Checks that each named value is a number, of Python or NumPy, and not a bool."""
    for name, value in values.items():
        check_type(_is(numbers.Real, value), f"`{name}` must be a number", **{name: value})


def _numbers(expectation, holds):
    """A check that each named value is a number, and so; it returns them as floats."""

    def check_each(**values):
        check_number(**values)
        for name, value in values.items():
            check(holds(value), f"`{name}` must be {expectation}", **{name: value})
        return [*map(float, values.values())]

    return check_each


check_finite = _numbers("finite", math.isfinite)
check_positive = _numbers("> 0", lambda value: 0 < value < math.inf)
check_not_negative = _numbers(">= 0", lambda value: 0 <= value < math.inf)
check_share = _numbers(">= 0 and < 1", lambda value: 0 <= value < 1)


def check_integer(least=None, /, **values):
    """Checks that each is an integer, with `least` from it to 2**63; returns plain integers."""
    for name, value in values.items():
        check_type(_is(numbers.Integral, value), f"`{name}` must be an integer", **{name: value})
        if least is not None:
            check(value >= least, f"`{name}` must be >= {least}", **{name: value})
            check(value < 2**63, f"`{name}` must be < 2**63", **{name: value})
    return [*map(int, values.values())]


def check_bool(**values):
    """Checks that each named value is true or false; returns them."""
    for name, value in values.items():
        check_type(isinstance(value, bool), f"`{name}` must be true or false", **{name: value})
    return [*values.values()]


def check_counts(**values):
    """Checks that each named value is a list of different positive integers."""
    for name, value in values.items():
        counts = value if isinstance(value, (list, tuple)) else ()
        valid = counts and all(_is(numbers.Integral, count) and count > 0 for count in counts)
        expectation = f"`{name}` must be a list of different positive integers"
        check(valid and len(set(counts)) == len(counts), expectation, **{name: value})


def check_one_of(options, **values):
    """Checks that each named value is one of `options`; returns them."""
    for name, value in values.items():
        listed = ", ".join(repr(option) for option in options)
        # True and 1.0 equal 1, but are not accepted for it.
        is_one = value in options and not isinstance(value, (bool, float))
        check(is_one, f"`{name}` must be one of {listed}", **{name: value})
    return [*values.values()]


def check_image_size(of="", /, **values):
    """Checks that each named value is (height, width, channels); `of` says of which images."""
    for name, value in values.items():
        sides = tuple(value) if isinstance(value, Iterable) else ()
        valid = len(sides) == 3 and all(_is(numbers.Integral, side) and side > 0 for side in sides)
        check(valid, f"`{name}` must be (height, width, channels){of}", **{name: value})


def check_fits(needed, what, **received):
    """Checks that `needed` bytes fit in the memory of this machine, or of its container."""
    memory = total_memory()
    expectation = f"{what} must fit in the memory, {memory / 1e9:,.1f} GB"
    check(needed <= memory, expectation, **received, needed=f"{needed / 1e9:,.1f} GB")


def keras_setting(name):
    """The `floatx`, `image_data_format` or `backend` of Keras without its import, and its place."""
    home = os.path.expanduser("~")
    home = os.path.join(home if os.access(home, os.W_OK) else "/tmp", ".keras")
    file = os.path.expanduser(os.path.join(os.environ.get("KERAS_HOME", home), "keras.json"))
    settings = {}
    # Without the file, or if it is broken, Keras has its defaults.
    with contextlib.suppress(FileNotFoundError, ValueError):
        settings = json.loads(pathlib.Path(file).read_text("utf-8"))
    check(isinstance(settings, dict), f"{file} must be of the form {{name: value}}", file=settings)
    value, place = settings.get(name, _OF_KERAS[name][0]), file
    if name == "backend" and os.environ.get("KERAS_BACKEND"):
        value, place = os.environ["KERAS_BACKEND"], "the variable KERAS_BACKEND"
    if keras := sys.modules.get("keras"):
        value, place = getattr(keras.config, name)(), f"{place} or by keras.config"
    return value, place


def check_keras(*names):
    """Rejects settings of Keras that tfdml cannot have: those named, or all that programs need."""
    if not names:
        backend, _ = keras_setting("backend")
        there = backend in _BACKENDS and importlib.util.find_spec(backend)
        expected = "`backend` of Keras must be tensorflow, jax or torch, and installed"
        check(there, expected, backend=backend)
    for name in names or ("floatx", "image_data_format"):
        value, place = keras_setting(name)
        expected = f"`{name}` of Keras must be {_OF_KERAS[name][0]}; it is set in {place}"
        check(value in _OF_KERAS[name], expected, **{name: value})


def unknown_name(kind, name, available):
    """The message "Unknown loss 'liftd'. Did you mean 'lifted'? Available: lifted, triplet."."""
    return f"Unknown {kind} {name!r}. {_suggestion(name, available)}"


def check_options(owner, given, available):
    """Raises a ValueError: "loss 'triplet' has no option 'magrin'. Did you mean 'margin'? ..."."""
    for option in given:
        if option not in available:
            suggestion = _suggestion(option, available)
            raise ValueError(f"{owner} has no option {option!r}. {suggestion}")


def conversion(name, shape, dtype):
    """How to make class ids of names or one-hot rows, for the end of an expectation; else empty."""
    if not any(kind in str(dtype) for kind in ("int", "float", "bool", "complex")):
        return f"; convert names by np.unique({name}, return_inverse=True)[1]"
    if len(shape) == 2 and shape[1] != 1:
        return f"; convert one-hot rows by np.argmax({name}, axis=1)"
    return ""


def nearest(name, available):
    """The available name with the nearest spelling; an empty text if none is near."""
    return next(iter(difflib.get_close_matches(str(name), available, n=1)), "")


def total_memory():
    """Bytes of memory; infinite if the system does not state them."""
    sizes = [math.inf]
    if hasattr(os, "sysconf"):  # not on Windows
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):  # of control groups 2 and 1
        path = pathlib.Path("/sys/fs/cgroup", limit)
        if path.is_file() and (text := path.read_text("utf-8").strip()).isdigit():
            sizes.append(int(text))
    return min(sizes)


def _suggestion(name, available):
    available = sorted(available)
    closest = nearest(name, available)
    hint = f"Did you mean {closest!r}? " if closest else ""
    return f"{hint}Available: {', '.join(available)}."


def _received(values):
    return "Received: " + ", ".join(f"{name}={value!r}" for name, value in values.items())


def _is(kind, value):
    return isinstance(value, kind) and not isinstance(value, bool)
