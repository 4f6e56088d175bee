import pytest

from tfdml.client.errors import ServingError
from tfdml.client.retries import Retries


def failing(times, code="UNAVAILABLE"):
    """A function that fails so many times, and counts its calls."""
    calls = []

    def function(value):
        calls.append(value)
        if len(calls) <= times:
            raise ServingError(code, "not now")
        return 2 * value

    return function, calls


def test_pauses_double_up_to_ten_seconds_and_differ():
    pauses, (function, calls) = [], failing(8)
    assert Retries(8, pauses.append)(function, 3) == 6
    assert len(calls) == 9
    longest = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    for pause, most in zip(pauses, longest, strict=True):
        assert most / 2 <= pause < most
    assert len({pause / most for pause, most in zip(pauses, longest, strict=True)}) == 8


def test_the_last_failure_is_raised():
    function, calls = failing(3)
    with pytest.raises(ServingError, match="UNAVAILABLE: not now"):
        Retries(2, lambda seconds: None)(function, 1)
    assert len(calls) == 3


@pytest.mark.parametrize("code", ["DEADLINE_EXCEEDED", "INTERNAL", "INVALID_ARGUMENT"])
def test_no_other_failure_is_repeated(code):
    function, calls = failing(1, code)
    with pytest.raises(ServingError, match=code):
        Retries(5, lambda seconds: None)(function, 1)
    assert len(calls) == 1
