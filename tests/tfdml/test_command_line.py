import dataclasses
import time

import pytest

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
