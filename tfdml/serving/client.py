"""Deprecated: `tfdml.client` replaces it."""

import runpy
import sys
import warnings

if __name__ == "__main__":
    print("tfdml.serving.client is deprecated: use python -m tfdml.client", file=sys.stderr)
    runpy.run_module("tfdml.client", run_name="__main__", alter_sys=True)


def __getattr__(name):
    from tfdml import client

    if name not in dir(client):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"use tfdml.client.{name}", DeprecationWarning, stacklevel=2)
    return getattr(client, name)
