import dataclasses
import locale
import time

import pytest
import yaml

from tfdml.command_line import Parser, program_call, program_name


@dataclasses.dataclass
class Settings:
    """What to do.

    Args:
        report: Whether to draw.
        steps: How many.
    """

    report: bool = False
    steps: int = 1


@pytest.mark.parametrize(
    ("arguments", "report"),
    [
        ([], False),
        (["--report"], True),
        (["--report", "--steps", "2"], True),
        (["--report", "true"], True),
        (["--report", "false"], False),
    ],
)
def test_a_flag_without_a_value_is_true(arguments, report):
    parser = Parser(Settings)
    assert parser.settings_of(parser.parse_args(arguments)).report is report


@pytest.mark.parametrize("arguments", [["--report", "2"], ["--steps"]])
def test_other_flags_need_their_value(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        Parser(Settings).parse_args(arguments)
    assert arguments[0].strip("-") in capsys.readouterr().err


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
    ("as_positional", "arguments"), [(True, ["Rome"]), (False, ["--place", "Rome"])]
)
def test_what_has_no_default_is_given_by_its_place_or_as_a_flag(as_positional, arguments, capsys):
    parser = Parser(Journey, as_positional=as_positional)
    assert parser.settings_of(parser.parse_args(arguments)) == Journey("Rome")
    other = Parser(Journey, as_positional=not as_positional)
    for wrong in (arguments, []):
        with pytest.raises(SystemExit, match="2"):
            other.parse_args(wrong)
    assert "place" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("started", "name", "call"),
    [
        ("/bin/tfdml-train", "tfdml-train", "tfdml-train"),
        ("train.py", "train.py", "python train.py"),
        ("my tfdml/train.py", "train.py", "python 'my tfdml/train.py'"),
        ("a/evaluate.py", "tfdml-train", "python a/train.py"),
        ("/site-packages/tfdml/serving/export.py", "tfdml-train", "tfdml-train"),
    ],
)
def test_a_program_is_called_again_as_it_was_started(started, name, call, monkeypatch):
    monkeypatch.setattr("sys.argv", [started])
    assert (program_name("train"), program_call("train")) == (name, call)


def test_a_file_of_settings_with_too_many_aliases_is_rejected(tmp_path, capsys):
    lines = [f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]" for i in range(9)]
    (tmp_path / "bomb.yaml").write_text("\n".join(["a0: &a0 [x]", *lines]))
    parser = Parser(Settings)
    parser.add_argument("--config", action="config")
    began = time.monotonic()
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--config", str(tmp_path / "bomb.yaml")])
    assert time.monotonic() - began < 10
    error = capsys.readouterr().err
    assert "bomb.yaml: settings must be YAML of at most" in error
    assert len(error.splitlines()) == 1


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


def test_a_file_of_settings_in_another_encoding_is_named(tmp_path, capsys):
    (tmp_path / "journey.yaml").write_text("place: Zürich", "utf-16")
    parser = Parser(Journey, as_positional=False)
    parser.add_argument("--config", action="config")
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--config", str(tmp_path / "journey.yaml")])
    error = capsys.readouterr().err
    assert f"{tmp_path / 'journey.yaml'} must be a text file in UTF-8" in error
    assert error.count("\n") == 1
