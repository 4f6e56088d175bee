"""A client for TF Serving that imports neither TensorFlow nor Keras."""

import importlib

_NAMES = {
    "Client": "client",
    "ImageError": "images",
    "ServingError": "service",
}

__all__ = sorted(_NAMES)


def __getattr__(name):
    # Loaded on first use, so `python -m tfdml.client --help` does not load NumPy.
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)


def __dir__():
    return sorted(__all__)
