"""A client for TF Serving that imports neither TensorFlow nor Keras."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
