"""Embedding, index and evaluation of collections of images that do not fit in memory.

Start it with `python -m tfdml.scale`; see its `--help`.
"""

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name):
    """A name of this package; an ImportError says what to install for it."""
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        needed = f"a collection needs {error.name}: pip install -e '.[scale]'"
        raise ImportError(needed) from error
