"""How a backbone is tuned: rates of its layers, files of adapters, and the memory it takes."""

import contextlib
import functools
import itertools
import pathlib
import zipfile
import zlib

import keras
import numpy as np

from tfdml.checks import check, total_memory
from tfdml.files import replacing
from tfdml.models.embedder import backbone_of
from tfdml.models.hub import add_adapters, wrapper_of

_GROUPS = 12  # of layers of a network without blocks


def layer_multipliers(embedder, decay):
    """Factors of the learning rate that fall from the head to the first layers of the backbone.

    The last block of the backbone has 1, the one before `decay`, then `decay**2` and so on. Blocks
    are those of a transformer, with what is before and behind them one each, or twelve equal parts
    of the layers of another network.

    Args:
        embedder: An embedder of `build_embedder`.
        decay: Above 0, at most 1.

    Returns:
        A list of a factor for each of the trainable variables of the embedder, 1 of the head's.

    Source:
        Bao, Dong, Piao, Wei. BEiT: BERT pre-training of image transformers. ICLR 2022; Liu et al. A
        ConvNet for the 2020s. CVPR 2022, appendix A, for networks without such blocks.
    """
    blocks = _blocks(backbone_of(embedder))
    if not any(map(_parts, blocks)):
        bounds = np.linspace(0, len(blocks), _GROUPS + 1).round().astype(int)
        blocks = [blocks[start:stop] for start, stop in itertools.pairwise(bounds)]
    else:
        blocks = [[block] for block in blocks]
    depths = {
        id(variable): depth
        for depth, block in enumerate(reversed(blocks))
        for layer in block
        for variable in layer.trainable_variables
    }
    return [decay ** depths.get(id(variable), 0) for variable in embedder.trainable_variables]


def _parts(layer):
    """The layers with weights of which a layer directly consists."""
    parts = layer._flatten_layers(include_self=False, recursive=False)
    return [part for part in parts if part.weights]


def _blocks(layer):
    """The layers with weights of a network in order; of like layers that have parts, these."""
    parts = _parts(layer)
    kinds = [type(part) for part in parts if _parts(part)]
    opened = isinstance(layer, (keras.Model, keras.layers.Wrapper)) or len(kinds) > len(set(kinds))
    return [block for part in parts for block in _blocks(part)] if opened else [layer]


def recomputable_blocks(embedder):
    """The blocks of a backbone, as those of `layer_multipliers`, for `recomputing`.

    Args:
        embedder: With a backbone of blocks, such as a transformer.

    Returns:
        A list of layers.

    Raises:
        ValueError: If it has no blocks, or some with random numbers, batch normalisation or a loss
            of their own, which would differ when they are computed again.
    """
    blocks = [block for block in _blocks(backbone_of(embedder)) if _parts(block)]
    check(blocks, "`recompute` needs a backbone of blocks, such as a transformer", blocks=0)
    for layer in (layer for block in blocks for layer in block._flatten_layers()):
        differs = layer._seed_generators or layer.activity_regularizer
        differs = differs or isinstance(layer, keras.layers.BatchNormalization)
        expected = "`recompute` needs blocks without dropout, batch normalisation and regularizers"
        check(not differs, f"{expected} of activities", layer=layer.name)
    return blocks


@contextlib.contextmanager
def recomputing(blocks):
    """Within it, a training keeps the outputs of these blocks and computes what is in them again.

    This is gradient checkpointing: less memory for more time, in float32.

    Args:
        blocks: Layers, as of `recomputable_blocks`; none to keep all.

    Source:
        Chen, Xu, Zhang, Guestrin. Training deep nets with sublinear memory cost. 2016, section 4.
    """

    def recomputed(call, *inputs, **options):
        tensors = {
            name: value
            for name, value in options.items()
            if any(map(keras.ops.is_tensor, keras.tree.flatten(value)))
        }

        def positional(*given):  # as only such tensors get gradients
            named = dict(zip(tensors, given[len(inputs) :], strict=True))
            return call(*given[: len(inputs)], **(options | named))

        return keras.remat(positional)(*inputs, *tensors.values())

    for block in blocks:
        block.call = functools.partial(recomputed, block.call)
    try:
        yield
    finally:
        for block in blocks:
            del block.call


def save_adapters(embedder, path):
    """Writes the adapters and the head of an embedder of `add_adapters` alone, as `.npz`.

    Args:
        embedder: Whose backbone has adapters.
        path: Of the file.
    """
    wrapper = wrapper_of(embedder)
    arrays = {str(n): value.numpy() for n, value in enumerate(embedder.trainable_variables)}
    with replacing(pathlib.Path(path)) as unfinished, unfinished.open("wb") as file:
        np.savez(file, rank=wrapper.rank, frozen=_frozen_checksum(embedder), **arrays)


def load_adapters(embedder, path):
    """Gives an embedder the adapters and the head of `save_adapters`.

    Args:
        embedder: As `build_embedder` makes it, of the same preset or function, size and
            `embedding_dim`. Its backbone is frozen then.
        path: Of the file.

    Raises:
        ValueError: If they are of another network or other frozen weights, or the file is none of
            `save_adapters`.
    """
    try:
        with np.load(path) as file:
            rank, frozen = int(file["rank"]), int(file["frozen"])
            values = [file[str(n)] for n in range(len(file.files) - 2)]
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} must be a file of `save_adapters` ({error})") from error
    backbone_of(embedder).trainable = False
    add_adapters(embedder, rank)
    shapes = [tuple(variable.shape) for variable in embedder.trainable_variables]
    expectation = f"{path} must be of this backbone and `embedding_dim`"
    check(shapes == [value.shape for value in values], expectation, rank=rank, arrays=len(values))
    expectation = f"{path} must be of these frozen weights: give the same `backbone` and `weights`"
    same = frozen == _frozen_checksum(embedder)
    check(same, expectation, backbone=wrapper_of(embedder).layer.name)
    for variable, value in zip(embedder.trainable_variables, values, strict=True):
        variable.assign(value)


def _frozen_checksum(embedder):
    """The CRC-32 of the weights that no training of adapters changes."""
    checksum = 0
    for variable in embedder.non_trainable_weights:
        checksum = zlib.crc32(variable.numpy().tobytes(), checksum)
    return checksum


def check_memory(embedder, rows, copies):
    """Checks that a training, whose optimizer has `copies` of each weight, may fit in memory."""
    weights = sum(int(np.prod(each.shape)) for each in embedder.trainable_variables)
    layers = (layer for layer in embedder._flatten_layers() if layer.trainable_variables)
    layers = (layer for layer in layers if len(getattr(layer, "_inbound_nodes", ())) == 1)
    outputs = keras.tree.flatten([layer.output for layer in layers])  # kept for the gradient
    shapes = [output.shape[1:] for output in outputs]
    maps = sum(int(np.prod(shape)) for shape in shapes if None not in shape)
    needed, memory = 4 * (weights * (2 + copies) + rows * maps), total_memory()
    flag = "--tune lora or head" if 4 * weights * (2 + copies) > memory / 2 else "--micro_batch"
    expectation = f"a full tuning must fit in the memory, {memory / 1e9:,.1f} GB: give {flag}"
    check(needed <= memory, expectation, needed=f"{needed / 1e9:,.1f} GB", images_at_once=rows)
