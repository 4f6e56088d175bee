"""Files that stop growing, as on a full disk."""

import contextlib
import resource


@contextlib.contextmanager
def files_of_at_most(size):
    """Within it, no file of this process grows beyond `size` bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
