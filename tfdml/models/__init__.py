"""Backbones, embedders and the model that trains them."""

import importlib

# Names for `--backbone` and `build_embedder`: name -> (module of this package with a function of
# that name, its largest number of levels).
BACKBONES = {
    "alexnet": ("alexnet", 1),
    "convnext_tiny": ("applications", 3),
    "efficientnet_b0": ("applications", 3),
    "googlenet": ("googlenet", 3),
    "inception_v3": ("applications", 3),
    "mobilenet_v2": ("applications", 3),
    "resnet50": ("applications", 3),
    "small_cnn": ("small_cnn", 3),
}

_MODULES = {
    "EmbeddingModel": "embedding_model",
    "backbone_of": "embedder",
    "build_embedder": "embedder",
    "first_levels": "embedder",
    "number_of_levels": "embedder",
}

__all__ = ["BACKBONES", *_MODULES]


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__():
    return sorted(__all__)
