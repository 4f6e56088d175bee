"""Dataclasses of settings, whose errors state the settings that they name."""

import re

from tfdml.checks import check


class Settings:
    """A dataclass of settings that are checked."""

    def check(self, holds, expectation, *names):
        """Raises a ValueError, unless the expectation holds.

        It states the settings that the expectation names in backticks, and others by `names`.
        """
        named = [*names, *re.findall(r"`(\w+)`", expectation)]
        check(
            holds,
            expectation,
            **{name: getattr(self, name) for name in named if hasattr(self, name)},
        )

    def check_default(self, names, expectation):
        """Raises a ValueError for one of the named settings that is not at its default.

        The expectation may hold `{name}` and `{default}`.
        """
        for name in self.changed(names):
            default = getattr(type(self), name, None)
            self.check(False, expectation.format(name=name, default=default))

    def changed(self, names):
        """The names, of those given, of the settings that are not at their defaults."""
        # A dataclass keeps its defaults as attributes of the class, except those of dicts.
        defaults = {name: getattr(type(self), name, {}) for name in names}
        return [name for name, default in defaults.items() if getattr(self, name) != default]

    def given(self, *names):
        """{name: value} of the named settings that are not None."""
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}
