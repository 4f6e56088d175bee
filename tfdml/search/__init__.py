"""Search by image in a folder: an index, a web page and a JSON interface.

Start it with `python -m tfdml.search`; see its `--help`.
"""

MOST_NEIGHBOURS = 200  # in one answer
