"""Registers the classes of tfdml with Keras, whichever of the two is imported first."""

import importlib

from tfdml import layers
from tfdml.losses.index import LOSSES, REGULARIZERS

# Module of tfdml -> its classes that a saved model may hold.
CLASSES = {
    "layers": dir(layers),
    "losses": sorted({*LOSSES.values(), *REGULARIZERS.values()}),
    "models": ("EmbeddingModel",),
    "models.hub": ("PartlyFrozen",),
    "optimizers": ("Adam", "SGD"),
}


class Deferred:
    """Stands in for a class in Keras's registry; imports it when a model is built with it."""

    def __init__(self, module, name):
        self.module, self.name = module, name

    def from_config(self, config):
        module = importlib.import_module(f"tfdml.{self.module}")
        return getattr(module, self.name).from_config(config)


def register():
    """Makes the classes known to `keras.models.load_model`; importing tfdml and Keras calls it."""
    from keras import saving

    for module, names in CLASSES.items():
        for name in names:
            if saving.get_registered_object(f"tfdml>{name}") is None:
                saving.register_keras_serializable("tfdml", name)(Deferred(module, name))
