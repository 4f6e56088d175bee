"""Scores of embeddings: NumPy arrays in, Python floats out; TensorFlow is not needed."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
