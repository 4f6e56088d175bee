"""What a loss learned, kept from one `compile` or file to the next."""

import collections
import weakref

import numpy as np
from keras import ops

from tfdml.checks import check

_OWNERS = weakref.WeakKeyDictionary()  # the model of each layer


def build_loss_layers(layers, model, trained):
    """Builds layers of a loss for a model, those that are not built, with its `weights_of` them."""
    for layer in layers:
        owner = _OWNERS.setdefault(layer, weakref.ref(model))
        expectation = (
            "`loss` must not be that of another model, whose weights it would alter: give each a "
            "loss of its own, or a copy with the weights, copy.deepcopy(loss)"
        )
        check(owner() is model, expectation, layer=layer.name)
    for name, layer in _named(layers):
        if not layer.built:
            layer.build(model.embedder.output_shape)
            if name in trained:
                check_shapes_of_weights(layer, trained[name])
                layer.load_own_variables(trained[name])


def weights_of(layers):
    """The weights of layers, by the names of both: `{"classproxies": {"0": array}}`."""
    found = {}
    for name, layer in _named(layers):
        layer.save_own_variables(weights := {})
        found[name] = {key: np.array(ops.convert_to_numpy(value)) for key, value in weights.items()}
    return found


def weights_in_file(store, layers):
    """As `weights_of`, all in the file that Keras reads; rejects those of other shapes."""
    names = getattr(store, "h5_file", {}).get("layers", {})
    found = {name.replace("_", ""): dict(store.get(f"layers/{name}")) for name in names}
    found = {name: weights for name, weights in found.items() if weights}  # not the embedder
    for name, layer in _named(layers):
        if name in found:
            check_shapes_of_weights(layer, found[name])
    return found


def check_shapes_of_weights(layer, weights):
    """Raises a ValueError if a layer has other shapes than weights that were trained for it."""
    [own] = weights_of([layer]).values()
    needed, trained = ([value.shape for value in each.values()] for each in (own, weights))
    expectation = (
        f"the weights of {layer.name!r} of the loss must have the shapes of those that were trained"
        "; to start anew: EmbeddingModel(model.embedder)"
    )
    check(needed == trained, expectation, loss=needed, trained=trained)


def _named(layers):
    """Layers by the names that Keras gives them in a file, but for underscores."""
    counts = collections.Counter()
    for layer in layers:
        name = type(layer).__name__.lower()
        yield f"{name}{counts[name] or ''}", layer
        counts[name] += 1
