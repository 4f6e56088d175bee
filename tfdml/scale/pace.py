"""When to save the work of a long loop."""

import time

_EVERY = 60.0  # seconds of work that a crash may lose
_SHARE = 20  # least ratio of that time to the time of saving


class Pace:
    """Saving is due about every minute, less often if it takes more than 3 seconds."""

    def __init__(self):
        self._saved, self._wait = time.monotonic(), _EVERY

    def save(self, function, *arguments):
        """Calls a function that saves, if that is due."""
        began = time.monotonic()
        if began - self._saved > self._wait:
            function(*arguments)
            self._saved = time.monotonic()
            self._wait = max(_EVERY, _SHARE * (self._saved - began))
