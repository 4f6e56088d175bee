"""Files of a network for ONNX Runtime, LiteRT and OpenVINO: written, verified and read."""

# pyright: reportMissingImports=false

import contextlib
import hashlib
import io
import json
import os
import pathlib
import shutil
import tempfile
import types
import warnings

import keras
import numpy as np
import tensorflow as tf

from tfdml.checks import check, check_fits
from tfdml.models import number_of_levels
from tfdml.serving.bounded_batches import fitting_batch_size
from tfdml.serving.metadata import read_metadata
from tfdml.serving.options import FORMATS, check_runtime
from tfdml.serving.weights import scaled

TOLERANCE = 1e-4  # of float32, beside the embeddings of Keras
VERIFIED = 64  # images
_COPIES = 70  # of the weights, in memory at once
_STEPS = ("class_id", "known", "probability")  # outputs that the smallest difference may change
NETWORK, SIMILARITY = "model", "similarity"  # names of files


class Network:
    """A network of a file, called as a signature of a SavedModel: `network(images=...)`."""

    def __init__(self, inputs, outputs, call):
        inputs, outputs = (
            {name: types.SimpleNamespace(shape=tuple(shape)) for name, shape in each.items()}
            for each in (inputs, outputs)
        )
        self.structured_input_signature, self.structured_outputs = ((), inputs), outputs
        self._call = call

    def __call__(self, **arrays):
        return self._call({name: np.asarray(rows, np.float32) for name, rows in arrays.items()})


def load_network(path):
    """The network in a file of an export, computed by its runtime, on the CPU in float32.

    Args:
        path: `model.onnx`, `model.tflite` or `model.xml`, or `similarity` of the same suffixes, in
            the folder of a version.

    Returns:
        A function of `images`, (n, height, width, channels) floats in [0, 255], or of
        `embeddings_a` and `embeddings_b`, (n, dim) each, to {name: (n, ...) floats}.

    Raises:
        ValueError: If the file is none of these, damaged, or of a version that the runtime cannot
            read, or the runtime is not installed.
        FileNotFoundError: If there is no such file.
    """
    path = pathlib.Path(path)
    known = {suffix: name for name, (suffix, _) in FORMATS.items()}
    expected = f"the file of a network must end in {', '.join(known)}"
    check(path.suffix in known, expected, path=str(path))
    name = known[path.suffix]
    check_runtime(name)
    stated = (read_metadata(path.parent).get("files") or {}).get(path.name, {})
    digest = _digest(path)
    expected = f"{path} is damaged, or changed since its export"
    check(stated.get("sha256") in (None, digest), expected, sha256=digest)
    try:
        return _READERS[name](path)
    except Exception as error:  # the runtimes raise many types
        words = str(error).strip().partition("\n")[0]
        raise ValueError(f"{path} cannot be read by {name} ({words})") from error


def write_networks(folder, served, loss, options, properties, images=None):
    """Writes the files of all formats of `ExportOptions`; returns their metadata, by file.

    Raises a ValueError if the numbers of one differ from those of Keras, for `images` or noise.
    """
    written, rows = {}, min(VERIFIED, fitting_batch_size(served.image_shape))
    images = _noise(served.image_shape)[::-1] if images is None else images
    inputs = {"images": np.asarray(images[:rows], np.float32)}
    most = TOLERANCE if options.precision == "float32" else np.inf
    for name, model in networks(served.embedder, loss, served.decision).items():
        exact = model(inputs, training=False)
        for kind in options.formats:
            path = folder / f"{name}{FORMATS[kind][0]}"
            with (
                tempfile.TemporaryDirectory() as unfinished,
                warnings.catch_warnings(),
                contextlib.redirect_stdout(io.StringIO()),
            ):
                warnings.simplefilter("ignore")
                plain = pathlib.Path(unfinished, path.name)
                _WRITERS[kind](model, plain, path, options.precision, properties)
            found = load_network(path)(**inputs)
            difference = max(
                _difference(found[name], exact[name]) for name in exact if name not in _STEPS
            )
            expected = f"{path.name} must have the numbers of Keras, up to {most:g}"
            check(difference <= most, expected, largest_difference=difference)
            size = sum(file.stat().st_size for file in parts_of(path)) / 1e6
            written[path.name] = {"format": kind, "sha256": _digest(path), "megabytes": size}
            written[path.name]["largest_difference"] = difference
        embeddings = np.asarray(next(iter(exact.values())))
        inputs = {"embeddings_a": embeddings, "embeddings_b": embeddings[::-1]}
    return written


def networks(embedder, loss=None, decision=None):
    """{name of a file: `keras.Model` of it}, from and to tensors by name."""
    images = keras.Input(embedder.input_shape[1:], name="images")
    rows = keras.layers.Identity(dtype="float32", name="embedding")(embedder(images))
    levels, outputs = number_of_levels(embedder), {"embedding": rows}
    if levels > 1:
        parts = keras.ops.split(rows, levels, axis=1)
        outputs |= {f"embedding{level}": part for level, part in enumerate(parts, start=1)}
    if decision is not None:
        outputs |= decision(rows)
    found = {NETWORK: keras.Model({"images": images}, outputs)}
    if loss is not None:
        a, b = (keras.Input(rows.shape[1:], name=f"embeddings_{side}") for side in "ab")
        scores = {"similarity": loss.similarity(a, b)}
        found[SIMILARITY] = keras.Model({"embeddings_a": a, "embeddings_b": b}, scores)
    return found


def parts_of(path):
    """The files of a network: that of OpenVINO has its weights beside it."""
    return [path, path.with_suffix(".bin")] if path.suffix == ".xml" else [path]


def _difference(found, exact):
    """The largest difference of the numbers, relative to the largest of them if beyond 1."""
    found, exact = np.asarray(found), np.asarray(exact)
    return float(np.abs(found - exact).max() / max(1.0, np.abs(exact).max()))


def _noise(image_shape):
    """Images of noise, coarse in the first and fine in the last."""
    rng, (height, width, channels) = np.random.default_rng(0), image_shape
    coarse = [rng.uniform(0, 255, (1, 2**i, 2**i, channels)) for i in range(1, 9) for _ in range(2)]
    return np.concatenate([tf.image.resize(each, (height, width)).numpy() for each in coarse])


def _digest(path):
    return hashlib.sha256(b"".join(file.read_bytes() for file in parts_of(path))).hexdigest()


# Optional dependencies, imported where a format is asked for.


def _write_onnx(model, plain, path, precision, properties):
    import onnx

    # tf2onnx copies the whole graph before each of its optimisations.
    check_fits(_COPIES * 4 * model.count_params(), "the conversion to ONNX, by tf2onnx,")
    model.export(plain, format="onnx", verbose=False)
    network = onnx.load(plain)
    if precision != "float32":
        _round_kernels(network.graph, precision)
    texts = {n: v if isinstance(v, str) else json.dumps(v) for n, v in properties.items()}
    onnx.helper.set_model_props(network, texts)
    onnx.save(network, path)


def _round_kernels(graph, precision):
    """Stores the kernels of an ONNX graph as the SavedModel does.

    ONNX Runtime restores them once, when it loads the file. Its own `quantize_dynamic` also rounds
    what layers pass on: MobileNetV2 loses its embedding by it, and becomes ten times slower.
    """
    from onnx import TensorProto, helper, numpy_helper

    kernels = {n.input[1] for n in graph.node if n.op_type in ("Conv", "MatMul", "Gemm")}
    restoring = []
    for tensor in [tensor for tensor in graph.initializer if tensor.name in kernels]:
        numbers = numpy_helper.to_array(tensor)
        axis = 0 if numbers.ndim == 4 else -1  # of the channels, which `scaled` takes last
        name, parts = tensor.name, scaled(np.moveaxis(numbers, axis, -1), precision)
        names = [f"{name}_{part}" for part in ("small", "scales", "numbers")]
        for part, known in zip(parts, names[:2], strict=True):
            part = np.ascontiguousarray(np.moveaxis(part, -1, axis))
            graph.initializer.append(numpy_helper.from_array(part, known))
        graph.initializer.remove(tensor)
        cast = helper.make_node("Cast", names[:1], names[2:], to=TensorProto.FLOAT)
        restoring += [cast, helper.make_node("Mul", names[1:], [name])]
    nodes = [*restoring, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _write_litert(model, plain, path, precision, properties):
    model.export(plain, format="litert", verbose=False)
    if precision == "float32":
        shutil.copy(plain, path)
        return
    from ai_edge_quantizer import quantizer, recipe_manager

    recipe, bits = recipe_manager.RecipeManager(), 16 if precision == "float16" else 8
    rounding = "float_casting" if precision == "float16" else "min_max_uniform_quantize"
    recipe.add_weight_only_config(".*", "*", bits, algorithm_key=rounding)
    result = quantizer.Quantizer(str(plain), recipe.get_quantization_recipe()).quantize()
    result.export_model(str(path))


def _write_openvino(model, plain, path, precision, properties):
    import openvino

    model.export(str(plain), format="openvino", verbose=False)
    network = openvino.Core().read_model(plain)
    if precision == "int8":
        import nncf

        network = nncf.compress_weights(network)
    openvino.save_model(network, path, compress_to_fp16=precision == "float16")


def _read_onnx(path):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = {tensor.name: tensor.shape for tensor in session.get_inputs()}
    outputs = {tensor.name: tensor.shape for tensor in session.get_outputs()}
    names = [*outputs]
    return Network(inputs, outputs, lambda rows: dict(zip(names, session.run(names, rows))))  # noqa: B905


def _read_litert(path):
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(str(path), num_threads=os.cpu_count()).get_signature_runner()
    details = runner.get_input_details(), runner.get_output_details()
    inputs, outputs = ({name: each["shape"] for name, each in d.items()} for d in details)
    return Network(inputs, outputs, lambda rows: runner(**rows))


def _read_openvino(path):
    import openvino

    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    network = openvino.Core().compile_model(path, "CPU", exact)
    inputs, outputs = (
        {tensor.any_name: tensor.partial_shape.get_min_shape() for tensor in tensors}
        for tensors in (network.inputs, network.outputs)
    )

    def call(rows):
        found = network(rows)
        return {name: found[name] for name in outputs}

    return Network(inputs, outputs, call)


_WRITERS = {"onnx": _write_onnx, "litert": _write_litert, "openvino": _write_openvino}
_READERS = {"onnx": _read_onnx, "litert": _read_litert, "openvino": _read_openvino}
