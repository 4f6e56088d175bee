"""Search by image in a folder: an index, a web page and a JSON interface.

Start it with `python -m tfdml.search`; see its `--help`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

MOST_NEIGHBOURS = 200  # in one answer
