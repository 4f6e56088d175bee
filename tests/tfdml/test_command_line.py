import dataclasses
import functools
import locale
from typing import Any, ClassVar, Literal

import pytest
import yaml

from tfdml.client.__main__ import Embed as Client
from tfdml.command_line import OpenShare, Parser, PositiveInt, Seed, Share, as_yaml, program_name
from tfdml.export import Export
from tfdml.programs.evaluate import TASKS
from tfdml.runs.recipe import Recipe
from tfdml.runs.task_options import Comparison
from tfdml.scale.__main__ import Embed, Index, Stored
from tfdml.search.__main__ import Search


@dataclasses.dataclass
class Journey:
    """Where to go.

    Args:
        place: The end of it.
        stops: How many.
    """

    place: str
    stops: int = 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], False), (["--report"], True), (["--report", "--wheels", "2"], True)]
    + [(["--report", word], word == "true") for word in ("true", "false")],
)
def test_a_flag_without_a_value_is_true(arguments, expected):
    parser = Parser(Crossing)
    assert parser.settings_of(parser.parse_args(arguments)).report is expected


@pytest.mark.parametrize("arguments", [["--report", "2"], ["--wheels"]])
def test_other_flags_need_their_value(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        Parser(Crossing).parse_args(arguments)
    assert arguments[0].strip("-") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("as_positional", "arguments"), [(True, ["Rome"]), (False, ["--place", "Rome"])]
)
def test_what_has_no_default_is_given_by_its_place_or_as_a_flag(as_positional, arguments, capsys):
    parser = Parser(Journey, as_positional=as_positional)
    assert parser.settings_of(parser.parse_args(arguments)) == Journey("Rome")
    other = Parser(Journey, as_positional=not as_positional)
    for wrong in (arguments, []):
        with pytest.raises(SystemExit, match="2"):
            other.parse_args(wrong)
    error = capsys.readouterr().err
    assert "place" in error
    assert as_positional or "arguments: --place. Give it without --place\n" in error


@pytest.mark.parametrize(
    ("started", "name"),
    [
        ("/bin/tfdml-train", "tfdml-train"),
        ("my tfdml/train.py", "train.py"),
        ("a/evaluate.py", "tfdml-train"),
    ],
)
def test_a_program_calls_itself_as_it_was_started(started, name, monkeypatch):
    monkeypatch.setattr("sys.argv", [started])
    assert program_name("train") == name


@dataclasses.dataclass
class Crossing:
    """How to cross.

    Args:
        bridge: Its name.
        by: Vehicle.
        wheels: How many.
        share: Of the toll.
        odds: Of rain.
        seed: Of the draws.
        stops: One or several.
        report: Whether to draw.
    """

    omissible: ClassVar = ("bridge",)

    bridge: str
    by: Literal["bus", "car"] | None = None
    wheels: PositiveInt = 4
    share: Share | None = None
    odds: OpenShare | None = None
    seed: Seed = 0
    stops: PositiveInt | list[PositiveInt] | None = None
    report: bool = False


def test_numbers_are_of_the_own_types_of_python():
    parser = Parser(Crossing)
    given = parser.settings_of(parser.parse_args(["--share", "0.5", "--seed=1", "--stops=[2]"]))
    numbers = given.share, given.seed, given.wheels, *given.stops
    assert [*map(type, numbers)] == [float, int, int, int]


def test_a_place_may_be_left_empty():
    parser = Parser(Crossing)
    for arguments, bridge in ([], None), (["Rialto"], "Rialto"):
        assert parser.settings_of(parser.parse_args(arguments)).bridge == bridge


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("by", "ship", "one of 'bus', 'car'"),
        ("wheels", "0", "an integer > 0"),
        ("wheels", "two", "an integer > 0"),
        ("wheels", "1.5", "an integer > 0"),
        ("share", "1", "a number >= 0 and < 1"),
        ("odds", "0", "a number > 0 and < 1"),
        ("seed", "-1", "an integer >= 0 and < 2**32"),
        ("seed", "4294967296", "an integer >= 0 and < 2**32"),
        ("stops", "[1, 0]", "an integer > 0 or a list, each an integer > 0"),
    ],
)
def test_types_reject_values_in_one_sentence(flag, value, expected, capsys):
    with pytest.raises(SystemExit, match="2"):
        Parser(Crossing).parse_args([f"--{flag}", value])
    sentence = f"error: `{flag}` must be {expected}. Received: {flag}={value}\n"
    assert capsys.readouterr().err.endswith(sentence)


@dataclasses.dataclass
class Licence:
    """Options of `Work`."""

    licence: str | None = None
    copies: int = 1


@dataclasses.dataclass
class Work:
    """What is made of what.

    Args:
        name: Its name.
        place: Where it lies.
        image: Of it.
        options: Any.
        headers: Texts.
        terms: As `Licence`.
    """

    paths: ClassVar = ("place", "image")
    options_of: ClassVar = {"terms": Licence}

    name: str | None = None
    place: str | None = None
    image: str | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    headers: dict[str, str] | None = None
    terms: dict[str, Any] = dataclasses.field(default_factory=dict)


# Texts that YAML 1.1, or the readers of it that take `1e5` for a number, may read as other values.
NUMBERS = ["38e7411", "1e5", "-1e5", "1.5e3", "0x10", "0x_", "007", "0o17", "1_000", "1:30", "3."]
NUMBERS += [".inf", "-.inf", ".nan", "._", "+1", "-3"]
WORDS = ["yes", "no", "on", "Off", "true", "False", "null", "Null", "None", "2026-11-28", "~"]
MARKS = ["#7", "a #7", "[a]", "[a", "{a}", "{a: b}", "!x", "!!int 3", "&a", "*a", "? x", "|", ">"]
MARKS += ["=", "<<", "---", "...", "-", "-x", "", "x ", " x", "a: b", "a:", "'x'", '"x', "%x", "@x"]
MARKS += ["- x", "a\nb", "a\tb", "é", "\udcff"]


@functools.cache
def parser_of_work():
    parser = Parser(Work)
    parser.add_argument("--config", action="config")
    return parser


def work(*flags):
    parser = parser_of_work()
    return parser.settings_of(parser.parse_args([*map(str, flags)]))


@pytest.mark.parametrize("text", [*NUMBERS, *WORDS, *MARKS])
def test_a_text_stays_a_text_through_flags_and_files(text, tmp_path, capsys):
    names = ("--name", "--headers.x-key", "--terms.licence")
    given = work(*(f"{name}={text}" for name in names))
    assert given == Work(text, headers={"x-key": text}, terms={"licence": text})
    if text not in ("---", "-x"):
        assert work(*(word for name in names for word in (name, text))) == given
    before = dataclasses.replace(given, options={"base": text, text: [{"of": text}]})
    file, printed = tmp_path / "file.yaml", tmp_path / "printed.yaml"
    file.write_text(as_yaml(dataclasses.asdict(before)))
    assert yaml.safe_load(file.read_text()) == dataclasses.asdict(before)
    with pytest.raises(SystemExit, match="0"):
        work("--config", file, "--print_config")
    out, err = capsys.readouterr()
    assert not err
    printed.write_text(out)
    for each in (file, printed):
        read = work("--config", each)
        assert read == before
        assert {type(read.name), type(read.options["base"])} == {str}


@pytest.mark.parametrize("text", [*NUMBERS, "yes", "2026-11-28"])
def test_what_a_file_states_without_quotes_is_the_text_of_a_field_of_texts(text, tmp_path):
    file = tmp_path / "file.yaml"
    file.write_text(f"name: {text}\nterms: {{licence: {text}, copies: 2}}\n")
    assert work("--config", file) == Work(text, terms={"licence": text, "copies": 2})


def test_values_of_other_options_are_read_as_yaml(tmp_path):
    flags = ["--options.a", "1e-3", "--options.b=[1e5, 2]", "--options.c", "null"]
    flags += ["--options.d", '{"e": "1e5"}', "--terms.copies", "3"]
    options = {"a": 1e-3, "b": [1e5, 2], "c": None, "d": {"e": "1e5"}}
    assert work(*flags) == Work(options=options, terms={"copies": 3})
    file = tmp_path / "file.yaml"
    file.write_text("options: {a: 1e-3, b: '1e-3', c: yes}\nplace: null\nname: ~\n")
    assert work("--config", file) == Work(options={"a": 1e-3, "b": "1e-3", "c": True})


def test_null_leaves_out_a_path_that_a_file_states(tmp_path):
    file = tmp_path / "file.yaml"
    file.write_text("name: x\nimage: mean.npy\n")
    assert work("--config", file, "--image", "null", "--name", "null") == Work("null")


def test_a_word_that_looks_like_a_flag_is_none():
    parser = Parser(Journey)
    assert parser.settings_of(parser.parse_args(["place=1e5"])) == Journey("place=1e5")


@pytest.mark.parametrize("flags", [["--name"], ["--name", "--place", "x"]])
def test_a_text_is_needed_where_a_flag_of_one_is_given(flags, capsys):
    with pytest.raises(SystemExit, match="2"):
        work(*flags)
    assert "--name: expected one argument" in capsys.readouterr().err


def test_a_path_of_the_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("USERPROFILE", "/home/ann")
    file = tmp_path / "file.yaml"
    file.write_text("place: ~/photos\n")
    given = work("--config", file, "--image=~/x.png", "--name", "~/y")
    assert given == Work("~/y", "/home/ann/photos", "/home/ann/x.png")
    assert work("--place", "s3://~/photos").place == "s3://~/photos"
    assert work("--place", "~").place == "/home/ann"


PROGRAMS = [Recipe, *TASKS.values(), Comparison, Embed, Index, Stored, Search, Export, Client]
NO_PATHS = {"loss", "dataset", "backbone", "pooling", "precision", "format"}
NO_PATHS |= {"run", "split", "rank_by", "cluster_by", "index_parameters", "engine", "address"}
NO_PATHS |= {"factory", "parameters", "host", "on_bad_image", "licence", "description"}
NO_PATHS |= {"server", "label", "index", "model"}  # names in some of the programs


@pytest.mark.parametrize("settings", PROGRAMS, ids=lambda kind: kind.__module__)
def test_each_setting_that_is_a_text_is_a_path_or_known_to_be_none(settings):
    kinds = {field.name: field.type for field in dataclasses.fields(settings)}
    texts = {name for name, kind in kinds.items() if kind in (str, str | None)}
    assert set(settings.paths) <= texts
    assert texts - set(settings.paths) <= NO_PATHS


@pytest.fixture
def ascii_locale():
    """The encoding of files that are opened without one is ASCII."""
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C")
    yield
    locale.setlocale(locale.LC_CTYPE, before)


@pytest.mark.usefixtures("ascii_locale")
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_file_of_settings_is_read_in_utf8(encoding, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "journey.yaml").write_text("place: Zürich → 京都", encoding)
    parser = Parser(Journey, as_positional=False)
    parser.add_argument("--config", action="config")
    for path in (tmp_path / "journey.yaml", "~/journey.yaml"):
        given = parser.parse_args(["--config", str(path)])
        assert parser.settings_of(given).place == "Zürich → 京都"
    with pytest.raises(SystemExit, match="0"):
        parser.parse_args(["--config", str(path), "--print_config"])
    printed = capsys.readouterr().out
    assert printed.isascii()  # so that it is right in whatever encoding it is saved
    assert yaml.safe_load(printed) == {"place": "Zürich → 京都", "stops": 0}
