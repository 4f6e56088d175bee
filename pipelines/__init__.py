"""Images in, class-balanced batches out.

>>> import pipelines
>>> digits = pipelines.load("digits")
>>> batches = pipelines.balanced_batches(digits.train, classes_per_batch=4, images_per_class=2)
>>> images, labels = next(iter(batches))
>>> images.shape, labels.shape
(TensorShape([8, 8, 8, 1]), TensorShape([8]))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
