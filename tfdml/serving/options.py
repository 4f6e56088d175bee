"""Options of an export: precision, unreadable images and metadata."""

import dataclasses

from tfdml.checks import check, check_integer, check_one_of, check_options
from tfdml.images.image_files import MAX_PIXELS

TOP = 5  # default number of classes or images that a model returns
PRECISIONS = ("float32", "float16", "int8")


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Args:
        precision: Of the stored weights: `float32`; or `float16` or `int8` for kernels of a half or
            a quarter of the size, which changes embeddings slightly. The rest of a model keeps its
            size, which counts in small ones. Computation stays in float32: the model becomes
            neither faster nor smaller in memory.
        on_bad_image: For an unreadable image, `error` fails the request and names the image; `nan`
            returns NaN in its row, and an output `valid` marks the row as false.
        max_pixels: Pixels of the largest image that is decoded, to bound the memory; at most
            178,956,970, which training reads. The pictures of an animated GIF count together.
        licence: Of the model, in words or as an SPDX identifier.
        description: What the model is for, in words.
    """

    precision: str = "float32"
    on_bad_image: str = "error"
    max_pixels: int = MAX_PIXELS
    licence: str | None = None
    description: str | None = None

    def __post_init__(self):
        check_one_of(PRECISIONS, precision=self.precision)
        check_one_of(("error", "nan"), on_bad_image=self.on_bad_image)
        check_integer(1, max_pixels=self.max_pixels)
        expected = f"`max_pixels` must be at most {MAX_PIXELS:,}, the limit of all images"
        check(self.max_pixels <= MAX_PIXELS, expected, max_pixels=self.max_pixels)

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
