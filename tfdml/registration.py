"""Registers the classes of tfdml with Keras, whichever of the two is imported first."""

import importlib
import importlib.abc
import sys

from tfdml.losses import LOSSES, REGULARIZERS

# Module of tfdml -> its classes that a saved model may hold.
CLASSES = {
    "layers": (
        "ClassProxies",
        "DensityTargets",
        "EmbeddingMemory",
        "GroupedConv2D",
        "LocalResponseNormalization",
        "MirrorAverage",
        "PDDM",
        "UnitLength",
    ),
    "losses": sorted({name for _, name, _ in (*LOSSES.values(), *REGULARIZERS.values())}),
    "models": ("EmbeddingModel",),
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
    """Makes the classes of tfdml known to `keras.models.load_model`.

    Importing tfdml and Keras, in either order, calls it.
    """
    from keras import saving

    for module, names in CLASSES.items():
        for name in names:
            if saving.get_registered_object(f"tfdml>{name}") is None:
                saving.register_keras_serializable("tfdml", name)(Deferred(module, name))


class AfterKeras(importlib.abc.MetaPathFinder):
    """Calls `register` when Keras has been imported.

    `import tfdml` does not import Keras, which takes seconds that `--help` and the serving client
    need not wait; and Keras has no hook for other packages.
    """

    def find_spec(self, name, path=None, target=None):
        if name != "keras":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, found), None)
        if spec is not None:
            load = spec.loader.exec_module

            def load_and_register(module):
                load(module)
                register()

            spec.loader.exec_module = load_and_register
        return spec


def register_with_keras():
    """Calls `register` now if Keras is imported, otherwise when it is."""
    if "keras" in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, AfterKeras())
