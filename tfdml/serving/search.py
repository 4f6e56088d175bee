"""Deprecated: `python -m tfdml.search` replaces it."""

import runpy
import sys

if __name__ == "__main__":
    print("tfdml.serving.search is deprecated: use python -m tfdml.search", file=sys.stderr)
    runpy.run_module("tfdml.search", run_name="__main__", alter_sys=True)
