"""Objectives over batches of embeddings, one published objective per file.

>>> from tfdml import losses
>>> loss = losses.get("lifted", margin=0.5)
>>> loss = losses.LiftedStructuredLoss(margin=0.5)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
