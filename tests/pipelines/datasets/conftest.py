import archives
import pytest


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Writes the small data set of a name in place of the published one; returns its folder."""

    def write(name):
        write, module, numbers = archives.SMALL[name]
        for attribute, value in numbers.items():
            monkeypatch.setattr(module, attribute, value)
        return write(tmp_path)

    return write
