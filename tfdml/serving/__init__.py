"""SavedModels for TF Serving, and a client for it."""

import importlib

# Public name -> its module.
_NAMES = {
    "Client": "client",
    "ExportOptions": "options",
    "Gallery": "nearest",
    "ServedModel": "signatures",
    "class_means": "nearest",
    "export_model": "saved_model",
}

__all__ = sorted(_NAMES)


def __getattr__(name):
    # Loaded on first use, so `python -m tfdml.serving.export --help` does not load TensorFlow.
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)


def __dir__():
    return sorted(__all__)
