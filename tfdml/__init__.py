"""Deep metric learning for TensorFlow and Keras 3.

>>> import keras
>>> import tfdml
>>> loss = tfdml.losses.LiftedStructuredLoss(margin=1.0)
"""

import lazy_loader
import wrapt

from tfdml.models.registration import register

__version__ = "0.1.0"

# Loaded on first use: the serving client and `train.py --help` must not wait for TensorFlow.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]

# Now if Keras is imported, otherwise when it is.
wrapt.register_post_import_hook(lambda _: register(), "keras")
