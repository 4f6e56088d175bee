"""Scores of exported models and of embeddings: the options of each task, and what it does."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
