"""Backbones, embedders and the model that trains them."""

import importlib

# What `--backbone` and `build_embedder` take: name -> module of this package with that function.
BACKBONES = {
    "alexnet": "alexnet",
    "convnext_tiny": "applications",
    "efficientnet_b0": "applications",
    "googlenet": "googlenet",
    "inception_v3": "applications",
    "mobilenet_v2": "applications",
    "resnet50": "applications",
    "small_cnn": "small_cnn",
}

_MODULES = {
    "EmbeddingModel": "embedding_model",
    "build_embedder": "embedder",
    "first_levels": "embedder",
}

__all__ = ["BACKBONES", *_MODULES]


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__():
    return sorted(__all__)
