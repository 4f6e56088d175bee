"""Options of an export: precision, formats, unreadable images and metadata."""

import dataclasses
import importlib.metadata
import importlib.util

from tfdml.checks import check, check_integer, check_one_of, check_options, check_type
from tfdml.images.image_files import MAX_PIXELS

TOP = 5  # default number of classes or images that a model returns
PRECISIONS = ("float32", "float16", "int8")
SAVED_MODEL = "saved_model"
# Formats of other runtimes -> the suffix of their files, and the modules that write and read them,
# which the extra of the same name installs.
FORMATS = {
    "onnx": (".onnx", ("onnx", "onnxruntime", "tf2onnx")),
    "litert": (".tflite", ("ai_edge_litert", "ai_edge_quantizer")),
    "openvino": (".xml", ("openvino", "nncf")),
}


def check_runtime(name):
    """Raises a ValueError for a format that is unknown, or that what is installed cannot write."""
    check_one_of((SAVED_MODEL, *FORMATS), format=name)
    modules = FORMATS[name][1] if name in FORMATS else ()
    missing = [module for module in modules if not importlib.util.find_spec(module)]
    needed = f'the format {name} needs {", ".join(missing)}: pip install "tfdml[{name}]"'
    check(not missing, needed, format=name)
    if name == "litert":
        version = importlib.metadata.version("keras")
        writes = tuple(map(int, version.split(".")[:2])) >= (3, 13)
        check(writes, "the format litert needs Keras 3.13, of Python 3.11 or later", keras=version)


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Args:
        precision: Of the stored weights: `float32`; or `float16` or `int8` for kernels of a half or
            a quarter of the size, which changes embeddings slightly. The rest of a model keeps its
            size, which counts in small ones. Computation stays in float32: the model becomes
            neither faster nor smaller in memory.
        format: `saved_model`; or `onnx`, `litert` and `openvino`, one or several joined by commas,
            whose files are written beside the SavedModel, with weights of the same precision.
        on_bad_image: For an unreadable image, `error` fails the request and names the image; `nan`
            returns NaN in its row, and an output `valid` marks the row as false.
        max_pixels: Pixels of the largest image that is decoded, to bound the memory; at most
            178,956,970, which training reads. The pictures of an animated GIF count together.
        licence: Of the model, in words or as an SPDX identifier.
        description: What the model is for, in words.
    """

    precision: str = "float32"
    format: str = SAVED_MODEL
    on_bad_image: str = "error"
    max_pixels: int = MAX_PIXELS
    licence: str | None = None
    description: str | None = None

    def __post_init__(self):
        check_one_of(PRECISIONS, precision=self.precision)
        check_type(isinstance(self.format, str), "`format` must be a text", format=self.format)
        for name in self.format.split(","):
            check_runtime(name)
        check_one_of(("error", "nan"), on_bad_image=self.on_bad_image)
        check_integer(1, max_pixels=self.max_pixels)
        expected = f"`max_pixels` must be at most {MAX_PIXELS:,}, the limit of all images"
        check(self.max_pixels <= MAX_PIXELS, expected, max_pixels=self.max_pixels)

    @property
    def formats(self):
        """The formats beside the SavedModel, each once."""
        return [name for name in FORMATS if name in self.format.split(",")]

    def check_size(self, image_size):
        """Raises a ValueError if images of this (height, width, channels) are not decoded."""
        pixels = image_size[0] * image_size[1]
        expectation = "`max_pixels` must be at least those of an image of the model"
        check(pixels <= self.max_pixels, expectation, max_pixels=self.max_pixels, pixels=pixels)


OPTIONS = [field.name for field in dataclasses.fields(ExportOptions)]


def export_options(options):
    """The `ExportOptions` of a dictionary, such as that of a recipe, checked."""
    check_options("`export_options`", options, OPTIONS)
    return ExportOptions(**options)


def options_kept(metadata):
    """The options that a new export takes from the metadata of a version: all but the precision."""
    kept = (name for name in OPTIONS if name != "precision")
    return {name: metadata[name] for name in kept if metadata.get(name) is not None}
