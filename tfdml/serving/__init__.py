"""What goes into a SavedModel for TF Serving."""

import importlib
import warnings

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name):
    if name == "Client":
        warnings.warn("use tfdml.client.Client", DeprecationWarning, stacklevel=2)
        return importlib.import_module("tfdml.client").Client
    return _load(name)
