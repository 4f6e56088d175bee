"""Deep metric learning for TensorFlow and Keras 3.

>>> import keras
>>> import tfdml
>>> loss = tfdml.losses.LiftedStructuredLoss(margin=1.0)
"""

import importlib

from tfdml.registration import register, register_with_keras

__version__ = "0.1.0"

_MODULES = (
    "callbacks",
    "client",
    "evaluation",
    "layers",
    "losses",
    "models",
    "optimizers",
    "serving",
)

__all__ = ["EmbeddingModel", "__version__", "register", *_MODULES]


def __getattr__(name):
    # Loaded on first use: `train.py --help` must not wait for TensorFlow.
    if name == "EmbeddingModel":
        return _load("models").EmbeddingModel
    if name in _MODULES:
        return _load(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(__all__)


def _load(name):
    return importlib.import_module(f"tfdml.{name}")


register_with_keras()
