"""Retries of requests while a server is unavailable."""

import random
import time

from tfdml.client.errors import ServingError

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 10.0


class Retries:
    """Repeats a call that failed with UNAVAILABLE, after pauses that double.

    Each pause is 0.2 s × 2^i, at most 10 s, times a random number in [0.5, 1), so that many clients
    of one server do not return at the same moment. No other failure is repeated: a rejected request
    would be rejected again, and one that timed out may still be running.

    Args:
        most: Repetitions after the first attempt; 0 for none.
        pause: Called with the seconds to wait.

    Raises:
        ServingError: The error of the last attempt.
    """

    def __init__(self, most, pause=time.sleep):
        self._most, self._pause = most, pause

    def __call__(self, function, *args):
        for attempt in range(self._most):
            try:
                return function(*args)
            except ServingError as error:
                if error.code != "UNAVAILABLE":
                    raise
            longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt)
            self._pause(longest * random.uniform(0.5, 1.0))
        return function(*args)
