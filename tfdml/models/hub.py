"""Networks that others define: presets of KerasHub, `hub:PRESET`, and `module:function`."""

import functools
import importlib
import math
import os
import re
import sys
from typing import Any

import keras
from keras import layers, ops

from tfdml.checks import check
from tfdml.layers import GeneralizedMean

_MASK = "mask_token"  # of training on masked images
_Layer: Any = layers.Layer
_SIZES = ("image_shape", "input_shape", "position_embedding_shape")


@keras.saving.register_keras_serializable("tfdml")
class PartlyFrozen(layers.Wrapper):
    """A model that is saved with its frozen layers and its adapters: those of KerasHub are not."""

    def __init__(self, layer, frozen=(), adapted=(), rank=None, **kwargs):
        super().__init__(layer, **kwargs)
        parts = layer._flatten_layers()
        for part in (part for number, part in enumerate(parts) if number in frozen):
            part.trainable = False
        self.adapt(adapted, rank)

    def adapt(self, adapted, rank):
        """Gives the layers of these numbers adapters, which alone of them are trained."""
        self.adapted, self.rank = list(adapted), rank
        parts = self.layer._flatten_layers()
        for layer in (part for number, part in enumerate(parts) if number in self.adapted):
            layer.trainable = True
            if not layer.lora_enabled:  # by the config of a functional model
                layer.enable_lora(rank)
            for variable in filter(None.__ne__, (layer._kernel, layer.bias)):
                variable.trainable = False
            # Keras would save the kernel with the adapter added, and load an adapter of zeros.
            layer.save_own_variables = functools.partial(_Layer.save_own_variables, layer)
            layer.load_own_variables = functools.partial(_Layer.load_own_variables, layer)

    def call(self, inputs):
        wanted = self.layer.input
        return self.layer(dict.fromkeys(wanted, inputs) if isinstance(wanted, dict) else inputs)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], *self.layer.output_shape[1:])

    def get_config(self):
        parts = enumerate(self.layer._flatten_layers())
        frozen = [number for number, part in parts if not part.trainable]
        own = {"frozen": frozen, "adapted": self.adapted, "rank": self.rank}
        return {**super().get_config(), **own}


def add_adapters(embedder, rank):
    """Gives the frozen backbone of an embedder adapters, low-rank changes of its kernels.

    Source:
        Hu et al. LoRA: low-rank adaptation of large language models. ICLR 2022.
        Differs: of presets as KerasHub places them, of functions at all dense layers.
    """
    wrapper = wrapper_of(embedder)
    names = getattr(wrapper.layer, "default_lora_layer_names", lambda: None)()
    adapted = [
        number
        for number, part in enumerate(wrapper.layer._flatten_layers())
        if isinstance(part, (layers.Dense, layers.EinsumDense))
        and (names is None or part.name in (*names, "q_proj", "v_proj"))  # these of DINOv3
    ]
    expectation = "adapters need a backbone with attention or dense layers: tune its head, or fully"
    check(adapted, expectation, backbone=wrapper.layer.name)
    wrapper.adapt(adapted, rank)
    embedder.predict_function = None  # traced without them


def wrapper_of(embedder):
    return next(part for part in embedder._flatten_layers() if isinstance(part, PartlyFrozen))


def named_features(backbone, inputs, pooling=None):
    """(batch, features) floats of images in [0, 255] by a network, and what the network is called.

    A preset scales the colours as its image converter does, and its position embeddings are resized
    to the images, bicubically. A network that pools takes no `pooling`.
    """
    kind, _, name = backbone.partition(":")
    shape = tuple(inputs.shape[1:])
    if kind == "hub":
        network, scale, offset = _preset(name, shape)
        x = layers.Rescaling(scale, offset, name="preset_colours")(inputs)
    else:
        network = _called(kind, name, shape)
        is_model = isinstance(network, keras.Model)
        check(is_model, f"`{backbone}` must return a keras.Model", type=type(network).__name__)
        x = inputs
    x, prefix = PartlyFrozen(network, name=network.name)(x), 0
    if len(x.shape) == 3:
        expectation = "a network that returns tokens must be a preset, which states its patches"
        check(kind == "hub", expectation, backbone=backbone, output_shape=x.shape)
        prefix = x.shape[1] - math.prod(_grid(network, shape))
    return _pooled(x, prefix, pooling), network.name


def preset_image_size(preset):
    """Side in pixels of the images of a preset, as its image converter has it."""
    sides = {*(_loaded("layers", "ImageConverter", preset).image_size or ())}
    expectation = f"hub:{preset} states no size of square images: give `image_size`"
    check(len(sides) == 1, expectation, sides=sorted(sides))
    return int(sides.pop())


def own_module(name):
    """The module of a function that makes a backbone, of this folder too."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    return importlib.import_module(name)


def _called(module, name, shape):
    """What a function returns for the shape of images."""
    try:
        return getattr(own_module(module), name)(shape)
    except Exception as error:
        what = f"`backbone` must be module:function, called with (height, width, channels) {shape}"
        raise ValueError(f"{what}. {module}:{name} failed: {error}") from error


def _preset(preset, shape):
    """The network of a preset for images of a shape, and the scale and offset of its colours."""
    converter = _loaded("layers", "ImageConverter", preset)
    policy = keras.config.dtype_policy()
    network = _loaded("models", "Backbone", preset, dtype=policy)
    network = getattr(network, "vision_encoder", network)  # the other part encodes texts
    config = network.get_config()
    size = config.get("image_shape") or config.get("input_shape")
    if "patch_size" in config:
        patch = _patch(network)
        fits = not (shape[0] % patch[0] or shape[1] % patch[1])
        sides = "×".join(map(str, patch))
        expectation = f"patches of {sides} pixels must divide the images: give another `image_size`"
        check(fits, expectation, image_size=shape[:2])
    if config.get("position_embedding_shape") and tuple(size) != shape:
        # KerasHub itself resizes those of the images that the network was trained on.
        network = _loaded("models", "Backbone", preset, dtype=policy, image_shape=shape)
        config, size = network.get_config(), shape
    wanted = {key: shape for key in _SIZES if config.get(key) and None not in size}
    wanted |= {"use_mask_token": False} if _MASK in {v.name for v in network.variables} else {}
    if any(config[key] != value for key, value in wanted.items()):
        changed = type(network).from_config({**config, **wanted})
        _copy_weights(network, changed, _grid(network, size), _grid(network, shape))
        network = changed
    offset = 0.0 if converter.offset is None else converter.offset
    return network, 1.0 if converter.scale is None else converter.scale, offset


def _loaded(package, name, preset, **options):
    """What the class `name` of KerasHub loads of a preset."""
    try:
        hub = importlib.import_module(f"keras_hub.{package}")
    except ImportError as error:
        words = 'needs KerasHub: pip install "tfdml[hub]", with Python 3.11 or later'
        raise ImportError(f"the backbone hub:{preset} {words} ({error})") from error
    try:
        return getattr(hub, name).from_preset(preset, **options)
    except Exception as error:  # of KerasHub, Kaggle, Hugging Face and the network
        reason = str(error).strip().partition("\n")[0].partition(". ")[0]
        expected = "a name of keras.io/keras_hub/presets, a handle hf:// or kaggle://, or a folder"
        if re.search("retries|resolve|connect|://.+ has no", reason, re.IGNORECASE):
            reason = "its host cannot be reached or does not give it: copy the folder of the preset"
            reason += " from elsewhere and give hub:FOLDER"
        sentence = f"KerasHub cannot load the preset {preset!r}, {expected}: {reason}"
        raise ValueError(sentence) from error


def _patch(network):
    size = network.get_config()["patch_size"]
    return (size, size) if isinstance(size, int) else tuple(size)


def _grid(network, shape):
    """Numbers of patches along the height and the width; 1 × 1 of a network without patches."""
    if "patch_size" not in network.get_config():
        return 1, 1
    return tuple(side // patch for side, patch in zip(shape, _patch(network), strict=False))


def _copy_weights(source, target, before, after):
    """Copies weights; of position embeddings those of another grid of patches."""
    values = {variable.path: variable.value for variable in source.variables}
    known = [variable for variable in source.variables if variable.name != _MASK]
    for old, new in zip(known, target.variables, strict=True):
        folder, _, name = old.path.rpartition("/")
        value = old.value
        if new.shape != old.shape:  # DINOv2 has them of two grids, and saves one alone
            value = values.get(f"{folder}/interpolated_{name}", value)
        if value.shape != new.shape and "int" in new.dtype:  # numbers of the positions
            continue
        if value.shape != new.shape:
            rows = ops.reshape(value, (-1, value.shape[-1]))
            prefix = rows.shape[0] - math.prod(before)
            grid = ops.reshape(rows[prefix:], (1, *before, -1))
            grid = ops.image.resize(grid, after, "bicubic")
            grid = ops.reshape(grid, (math.prod(after), -1))
            value = ops.reshape(ops.concatenate([rows[:prefix], grid]), new.shape)
        new.assign(value)


def _pooled(x, prefix, pooling):
    """(batch, features) of features, maps or tokens, of which the first `prefix` are no patches."""
    rank, known = len(x.shape), ("average", "average+max", "gem")
    if rank == 2:
        known = (None,)
    elif prefix:
        known = ("class", "average", "class+average", "gem")
    pooling = pooling or known[0]
    expectation = f"`pooling` of this network must be one of {', '.join(map(str, known))}"
    check(pooling in known, expectation, pooling=pooling)
    if pooling is None:
        return x
    places = tuple(range(1, rank - 1))
    rows = x[:, prefix:] if prefix else x
    if pooling == "gem":
        return GeneralizedMean(name="generalized_mean")(rows)
    parts = {
        "class": lambda: x[:, 0],
        "average": lambda: ops.mean(rows, axis=places),
        "max": lambda: ops.max(rows, axis=places),
    }
    found = [parts[part]() for part in pooling.split("+")]
    if pooling == "class+average":
        return ops.concatenate(found, axis=-1)
    return sum(found[1:], found[0])
