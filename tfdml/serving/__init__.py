"""What goes into a SavedModel for TF Serving."""

import importlib
import warnings

# Public name -> its module; loaded on first use, as they import TensorFlow.
_NAMES = {
    "ExportOptions": "options",
    "Gallery": "nearest",
    "ServedModel": "signatures",
    "class_means": "nearest",
    "export_model": "saved_model",
}

__all__ = sorted(_NAMES)


def __getattr__(name):
    if name == "Client":
        warnings.warn("use tfdml.client.Client", DeprecationWarning, stacklevel=2)
        return importlib.import_module("tfdml.client").Client
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)


def __dir__():
    return sorted(__all__)
