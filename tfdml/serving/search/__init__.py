"""Search by image in a folder: an index, a page to look at and a JSON interface.

`python -m tfdml.serving.search --help` tells how to start it.
"""
