import sys

import pytest

from benchmarks.peers import environment


def test_it_is_built_once_for_its_requirements(tmp_path, monkeypatch):
    commands = []

    def run(*command):
        commands.append(command)
        if "venv" in command:
            command[-1].mkdir(parents=True)

    def fail(*command):
        raise RuntimeError("no network")

    monkeypatch.setattr(environment, "run", run)
    monkeypatch.setattr(environment, "PYTHONS", (sys.version_info[:2],))
    with monkeypatch.context() as broken:
        broken.setattr(environment, "run", fail)
        with pytest.raises(RuntimeError, match="no network"):
            environment.python_of_peers(tmp_path)
    python = environment.python_of_peers(tmp_path)
    assert len(commands) == 2
    assert str(environment.REQUIREMENTS) in map(str, commands[1])
    assert environment.python_of_peers(tmp_path) == python
    assert len(commands) == 2
    other = tmp_path / "requirements.txt"
    other.write_text("torch==1.0\n")
    monkeypatch.setattr(environment, "REQUIREMENTS", other)
    assert environment.python_of_peers(tmp_path) != python


def test_the_error_of_a_command_is_its_last_line():
    with pytest.raises(RuntimeError, match=r"failed: no such version$"):
        environment.run(sys.executable, "-c", "exit('ERROR\\nno such version')")
