"""What a run may use, seconds or steps, and the learning rate that falls over it."""

import math
import time


class Budget:
    """A budget whose clock starts now.

    Args:
        seconds: Seconds from now; None to count steps.
        steps: Steps of training, if `seconds` is None.
    """

    def __init__(self, seconds=None, steps=None):
        self.seconds, self.steps, self.start = seconds, steps, time.perf_counter()

    def elapsed(self):
        return time.perf_counter() - self.start

    def used(self, step):
        """The share that is used before a step, counted from 0: at 1 or above it is spent."""
        return step / self.steps if self.seconds is None else self.elapsed() / self.seconds

    def rate(self, step):
        """The share of the learning rate at a step: a cosine from 1 to 0 over the budget."""
        return (1 + math.cos(math.pi * min(self.used(step), 1.0))) / 2
