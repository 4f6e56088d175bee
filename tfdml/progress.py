"""The progress bar of all loops that may take long."""

import shutil

from tqdm import tqdm


def progress(what, items=None, *, total=None, unit="image", shown=True, done=0) -> tqdm:
    """`tqdm` over items, shown in a terminal if they take more than two seconds.

    Args:
        what: What is done to the items, such as `"Checking images"`.
        items: Iterable; None for a bar that is moved by `update`.
        total: Number of items, if they have no length.
        unit: Of the items.
        shown: Whether to show it at all.
        done: Number of items that were done before.
    """
    disable = None if shown else True  # None: unless in a terminal
    bar = tqdm(items, what, total, unit=unit, delay=2, disable=disable, initial=done)
    if not bar.disable and (bar.ncols or 0) < 0:  # of a terminal that does not state its size
        bar.ncols, bar.nrows = shutil.get_terminal_size((80, 24))
    return bar
