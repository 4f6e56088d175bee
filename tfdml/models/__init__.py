"""Backbones, embedders and the model that trains them."""

import importlib

# What `--backbone` and `build_embedder` take: name -> module of the same name in this package.
BACKBONES = ("mobilenet_v2", "small_cnn")

_MODULES = {"EmbeddingModel": "embedding_model", "build_embedder": "embedder"}

__all__ = ["BACKBONES", *_MODULES]


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__():
    return sorted(__all__)
