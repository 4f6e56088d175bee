"""Deep metric learning for TensorFlow and Keras 3.

>>> import tfdml
>>> loss = tfdml.losses.LiftedStructuredLoss(margin=1.0)
"""

import importlib

__version__ = "0.1.0"

_MODULES = ("callbacks", "evaluation", "layers", "losses", "models", "optimizers", "serving")

__all__ = ["EmbeddingModel", "__version__", *_MODULES]


def __getattr__(name):
    # Loaded on first use: `import tfdml` and `train.py --help` must not wait for TensorFlow.
    if name == "EmbeddingModel":
        return importlib.import_module("tfdml.models").EmbeddingModel
    if name in _MODULES:
        return importlib.import_module(f"tfdml.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
