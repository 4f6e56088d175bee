import threading
import time

import pytest

from tfdml.client.service import Retries, ServingError, in_order


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


def test_answers_come_in_order_and_only_so_many_are_under_way():
    lock, under_way, most = threading.Lock(), [0], [0]

    def slow(i):
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        time.sleep(0.02 * (3 - i % 4))
        with lock:
            under_way[0] -= 1
        return i

    taken = []

    def items():
        for i in range(12):
            taken.append(i)
            yield i

    found = []
    for answer in in_order(slow, items(), 3):
        found.append(answer)
        assert len(taken) <= len(found) + 2  # not all of them are read at once
    assert found == list(range(12))
    assert most[0] == 3


def test_the_error_of_a_call_is_raised_in_its_place():
    def function(i):
        return 1 // (2 - i)

    answers = in_order(function, range(5), 2)
    assert [next(answers), next(answers)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(answers)
