"""What the command lines share: flags from a dataclass, and errors as one sentence."""

import contextlib
import dataclasses
import functools
import inspect
import os
import pathlib
import re
import sys
import types
import typing
import warnings

import jsonargparse
import yaml

from tfdml.checks import check, nearest, unknown_name
from tfdml.files import read_text

# In characters of every encoding, as of what `--print_config` prints.
jsonargparse.set_dumper("yaml", functools.partial(yaml.safe_dump, sort_keys=False))

if typing.TYPE_CHECKING:
    Count = int
    PositiveInt = int
    Seed = int
    NotNegative = float
    OpenShare = float
    Positive = float
    Share = float
else:
    Count, PositiveInt = jsonargparse.typing.NonNegativeInt, jsonargparse.typing.PositiveInt
    OpenShare = jsonargparse.typing.OpenUnitInterval
    _number = jsonargparse.typing.restricted_number_type
    Seed = _number("Seed", int, [(">=", 0), ("<", 2**32)])
    NotNegative = _number("NotNegative", float, [(">=", 0), ("<", float("inf"))])
    Positive = _number("Positive", float, [(">", 0), ("<", float("inf"))])
    Share = _number("Share", float, [(">=", 0), ("<", 1)])
_IN_WORDS = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a text",
    Count: "an integer >= 0",
    PositiveInt: "an integer > 0",
    Seed: "an integer >= 0 and < 2**32",
    NotNegative: "a number >= 0",
    OpenShare: "a number > 0 and < 1",
    Positive: "a number > 0",
    Share: "a number >= 0 and < 1",
}
_TEXT, _NULL = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null"
_WRONG_TYPE = (
    r'Parser key "(\w+)": (?:(?:Expected a|Does not validate).* value: (.*)|'
    r"Not of type \w+: (?:.*: |.*, not )?'?(.*?)'?(?: does not conform .*)?$)"
)


class _Text(str):
    """A text, which jsonargparse does not read as YAML again."""


class _Loader(yaml.SafeLoader):
    """Reads `1e5` as a number, as JSON does, and a date as a text."""


class _Dumper(yaml.SafeDumper):
    """Quotes texts that are numbers to `_Loader` or to `yaml.safe_load`."""


for _kind in (_Loader, _Dumper):
    _exponent = re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$")
    _kind.add_implicit_resolver("tag:yaml.org,2002:float", _exponent, list("-+0123456789"))
for _tag in (_TEXT, "tag:yaml.org,2002:timestamp"):
    _Loader.add_constructor(_tag, lambda loader, node: _Text(node.value))
_Dumper.add_representer(_Text, yaml.SafeDumper.represent_str)
jsonargparse.typing.register_type(_Text, serializer=lambda text: text)


def as_yaml(settings):
    """The YAML of {name: value}, of which each text is read as the same text."""
    return yaml.dump(settings, Dumper=_Dumper, sort_keys=False)


def from_yaml(text) -> typing.Any:
    """The content of YAML, whose numbers and texts are those of a parser's files."""
    try:
        return _plain(yaml.load(text, _Loader))
    except (RecursionError, yaml.YAMLError) as error:
        raise ValueError(" ".join(str(error).split())) from None


class Settings:
    """A dataclass of settings, whose errors state the settings that they name."""

    def check(self, holds, expectation, *names):
        """As `checks.check`, of the settings in backticks in the expectation, and of `names`."""
        named = [*names, *re.findall(r"`(\w+)`", expectation)]
        received = {name: getattr(self, name) for name in named if hasattr(self, name)}
        check(holds, expectation, **received)

    def check_default(self, names, expectation):
        """Rejects the named settings off their defaults; `{name}` and `{default}` are filled in."""
        for name in self.changed(names):
            default = getattr(type(self), name, None)
            self.check(False, expectation.format(name=name, default=default))

    def check_rules(self, *rules):
        """As `check_default`, of the rules (whether it applies, names, expectation) that apply."""
        for applies, names, expectation in rules:
            self.check_default(names if applies else (), expectation)

    def changed(self, names):
        """The names, of those given, of the settings that are not at their defaults."""
        # A dataclass keeps its defaults as attributes of the class, except those of dicts.
        return [name for name in names if getattr(self, name) != getattr(type(self), name, {})]

    def given(self, *names):
        """{name: value} of the named settings that are not None."""
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}


class Parser(jsonargparse.ArgumentParser):
    """A parser of the fields of a dataclass, as flags and as YAML keys.

    Its docstring and those of its bases describe the fields, with lists of `names` filled in. What
    has no default is given by its place, or as a flag unless `as_positional`. The value of a field
    of texts is taken as it is given, whatever it is in YAML. A dataclass may name fields in
    attributes of the class: `paths`, whose `~` is expanded and which the flag `null` leaves out;
    `omissible`, which are given by their place or are None; and `options_of`, which has the
    dataclass of fields of options.
    """

    def __init__(
        self, settings, names=None, description: str | None = None, as_positional=True, **kwargs
    ):
        first_line = (description or "").partition("\n")[0]
        mode = f"{settings.__module__}.{settings.__qualname__}"
        jsonargparse.set_loader(mode, self._read, (yaml.YAMLError,))
        jsonargparse.set_dumper(mode, as_yaml)
        super().__init__(allow_abbrev=False, description=first_line, parser_mode=mode, **kwargs)
        self._settings = settings
        self._file = self._last_file = None
        self._types = _types_of(settings)
        documented = settings.__doc__
        try:
            listed = {key: ", ".join(map(str, values)) for key, values in (names or {}).items()}
            settings.__doc__ = _documented(settings).format(**listed)
            self.add_class_arguments(settings, as_positional=as_positional)
        finally:
            settings.__doc__ = documented
        omissible = getattr(settings, "omissible", ())
        for action in self._actions:
            kind = self._types.get(action.dest)
            if bool in (kind, *typing.get_args(kind)):
                action.nargs, action.const = "?", True  # a flag without a value is true
            if action.dest in omissible:
                action.nargs, action.required = "?", False

    def parse_args(self, args=None, namespace=None, **kwargs):
        """As that of jsonargparse; rejects flags that it would misread."""
        words = [""]
        for word in sys.argv[1:] if args is None else args:
            deep = re.match(r"(--\w+\.\w+)\.(\w+)", word)
            if deep:  # it keeps the last of them alone, as text
                self.error(f"{deep[0]} is too deep: give {deep[1]} '{{\"{deep[2]}\": ...}}'")
            flag, equals, value = word.partition("=")
            if equals and self._is_text(flag, value):
                words += [flag, _Text(value)]
            elif not re.match("--|-[A-Za-z]", word) and self._is_text(words[-1], word):
                words.append(_Text(word))
            else:
                words.append(word)
        return super().parse_args(words[1:], namespace, **kwargs)

    def _parse_optional(self, arg_string):
        return None if isinstance(arg_string, _Text) else super()._parse_optional(arg_string)

    def _is_text(self, flag, value):
        """Whether the value of a flag, such as `--run` or `--headers.name`, is a text."""
        named = re.fullmatch(r"--(\w+)\.?(.*)", flag)
        if not named:
            return False
        name, option = named.groups()
        if value == "null" and name in getattr(self._settings, "paths", ()):
            return False
        kind, options = self._types.get(name), getattr(self._settings, "options_of", {})
        if option and name not in options:
            return dict[str, str] in _members(kind)
        return str in _members(_types_of(options[name]).get(option) if option else kind)

    def _read(self, content):
        """The content of a file of settings, or the value of a flag."""
        root = yaml.compose(content, _Loader)
        self._mark_texts(root)
        return root and _Loader("").construct_document(root)

    def _mark_texts(self, node, owner="--"):
        """Makes texts of the values of the fields of texts, except null."""
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            flag = f"{owner}{key.value}"
            if isinstance(value, yaml.ScalarNode):
                is_text = value.tag != _NULL and self._is_text(flag, value.value)
                value.tag = _TEXT if is_text else value.tag
            elif owner == "--":
                self._mark_texts(value, f"{flag}.")

    def settings_of(self, namespace):
        """The dataclass that the parsed flags describe; exits with code 2 if it rejects them."""
        given = namespace.as_dict()
        values = {name: _plain(given[name]) for name in self._types}
        for name in getattr(self._settings, "paths", ()):
            values[name] = values[name] and os.path.expanduser(values[name])
        for name, value in values.items():
            omitted = name in getattr(self._settings, "omissible", ())
            if value is None and not omitted and type(None) not in _members(self._types[name]):
                self._file = self._last_file
                self.error(self._wrong_type(name, "null"))
        try:
            return self._settings(**values)
        except (TypeError, ValueError) as error:
            self.error(str(error))

    def parse_path(self, path, **kwargs):
        """As that of jsonargparse, in UTF-8; its errors name the file."""
        try:
            text = read_text(os.path.expanduser(path))
            self._file = path
            text = self.settings_in(os.path.expanduser(path), text)
            return self.parse_string(text, os.path.basename(path), **kwargs)
        except ValueError as error:
            self.error(str(error))
        finally:
            self._file, self._last_file = None, path

    def settings_in(self, path, text):
        """The YAML of the settings in the text of a file, as a subclass reads it."""
        return text

    def error(self, message, ex=None) -> typing.NoReturn:
        """Exits with code 2 and the message in one line, with the nearest flag to a misspelt."""
        message = re.sub("Unexpected config:.*", "not lines of `name: value`", message, flags=re.S)
        message = " ".join(message.split())
        wrong = re.search(_WRONG_TYPE, message)
        if wrong and wrong[1] in self._types:
            message = self._wrong_type(wrong[1], wrong[2] or wrong[3])
        if "is not accepted" in message:  # a key, found once the file is read
            self._file = self._last_file
        if self._file:
            message = f"{self._file}: {message}"
        misspelt = re.search(r"unrecognized arguments:.*|'\w+' is not accepted", message)
        for word in re.findall(r"(?:(?<!\S)--?|')([A-Za-z_]\w+)", misspelt[0]) if misspelt else ():
            if flag := nearest(word, self._types):
                hint = f"Did you mean --{flag}?" if flag != word else f"Give it without --{flag}"
                message += f". {hint}"
                break
        fail(self.prog, message)

    def _wrong_type(self, name, value):
        return f"`{name}` must be {_in_words(self._types[name])}. Received: {name}={value}"


def _types_of(settings):
    return {field.name: field.type for field in dataclasses.fields(settings)}


def _members(kind):
    unions = (types.UnionType, typing.Union)  # the second of literals
    return typing.get_args(kind) if typing.get_origin(kind) in unions else [kind]


def _plain(value) -> typing.Any:
    """The value with texts and numbers of Python's own types."""
    if isinstance(value, dict):
        return {_plain(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [*map(_plain, value)]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value) if isinstance(value, int) else float(value)
    return str(value) if isinstance(value, _Text) else value


def _documented(settings):
    docs = [inspect.cleandoc(kind.__doc__ or "") for kind in settings.__mro__[:-1]]
    return "\n".join([docs[0], *(doc.partition("Args:\n")[2] for doc in docs[1:])])


def _in_words(kind):
    if typing.get_origin(kind) is dict:
        return "options, such as {name: value}"
    if typing.get_origin(kind) is list:
        return f"a list, each {_in_words(*typing.get_args(kind))}"
    if typing.get_origin(kind) is typing.Literal:
        return f"one of {', '.join(map(repr, typing.get_args(kind)))}"
    kinds = [each for each in _members(kind) if each is not type(None)]
    return " or ".join(_IN_WORDS.get(each) or _in_words(each) for each in kinds)


def fail(program, message, code=2) -> typing.NoReturn:
    """Prints one sentence to the standard error and exits with the code."""
    print(f"{program}: error: {message}", file=sys.stderr)
    raise SystemExit(code)


def program_name(program):
    """What a program calls itself: `train.py` in a process of that script, else `tfdml-train`."""
    script = pathlib.PurePath(sys.argv[0]).name
    return script if script == f"{program}.py" else f"tfdml-{program}"


def command_of(program, description, commands, arguments=None):
    """The command that a program was given, and the arguments behind it; without one its help."""
    arguments = sys.argv[1:] if arguments is None else arguments
    command = arguments[0] if arguments else "--help"
    if command in ("--help", "-h"):
        print((description or "").strip())
        raise SystemExit(0)
    if command not in commands:
        fail(program, unknown_name("command", command, commands))
    return command, arguments[1:]


@contextlib.contextmanager
def one_sentence(program, *errors, stopped="stopped", code=2, hint=""):
    """Exits with `code` and the sentence of an error, after Ctrl-C with 130; warns by sentences."""
    formatted = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"{program}: warning: {message}\n"
    try:
        yield
    except errors as error:
        fail(program, f"{error}{hint}", code)
    except KeyboardInterrupt:
        print(f"\n{program}: {stopped}", file=sys.stderr)
        raise SystemExit(130) from None
    finally:
        warnings.formatwarning = formatted
