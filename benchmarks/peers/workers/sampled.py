"""What is measured of a sampler, whichever library it is of."""

import itertools


def taken(batches, count):
    """The work: a sampler's first batch if `count` is 0, else that many batches of one that runs.

    Args:
        batches: Function that makes the sampler and returns an endless iterator of its batches.
        count: Batches of a call.
    """
    if not count:
        return lambda: {"rows": len(next(batches()))}
    running = batches()
    next(running)
    return lambda: {"rows": sum(map(len, itertools.islice(running, count)))}


def epoch_after_epoch(sampler):
    """The batches of a sampler whose epochs end."""
    while True:
        yield from sampler
