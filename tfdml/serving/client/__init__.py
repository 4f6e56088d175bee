"""A client of TF Serving that needs neither Keras nor to import TensorFlow."""

import importlib

_NAMES = {
    "Client": "client",
    "ImageError": "errors",
    "ServingError": "errors",
}

__all__ = sorted(_NAMES)


def __getattr__(name):
    # Loaded on first use: `python -m tfdml.serving.client --help` must not wait for NumPy.
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)


def __dir__():
    return sorted(__all__)
