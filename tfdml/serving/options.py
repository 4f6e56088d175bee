"""How a model is exported, and what is said of it to those who serve it."""

import dataclasses

from tfdml.checks import check, check_integer, check_one_of, unknown_option

MAX_PIXELS = 50_000_000  # of one image; as pixels and as numbers they take 0.8 GB
TOP = 5  # classes or images that a model tells, where nothing is said
PRECISIONS = ("float32", "float16", "int8")


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Args:
        precision: Of the weights in the files: `float32`; or `float16` or `int8` for a half or a
            quarter of the size, for which the numbers of an embedding are rounded. They compute
            in float32 all the same: the model gets neither faster nor smaller in the memory.
        on_bad_image: `error`, for a request with an image that cannot be read, which names it; or
            `nan`: its numbers are NaN, and an output `valid` tells it, false, from the others of
            the request.
        max_pixels: Pixels of the largest image that is decoded, against memory that runs out.
        licence: Of the model, in words or by its SPDX identifier.
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
        check_integer(max_pixels=self.max_pixels)
        check(self.max_pixels > 0, "`max_pixels` must be > 0", max_pixels=self.max_pixels)


def export_options(options):
    """The `ExportOptions` of a dictionary, such as that of a recipe.

    Raises:
        ValueError: If there is no such option, or a value is out of range.
    """
    available = [field.name for field in dataclasses.fields(ExportOptions)]
    for option in options:
        if option not in available:
            raise ValueError(unknown_option("`export_options`", option, available))
    return ExportOptions(**options)


def options_kept(metadata):
    """What an export again takes over from the metadata of a version: all but the precision.

    Args:
        metadata: {name: value}, as of `read_metadata`.

    Returns:
        {name: value} for `export_options`.
    """
    names = [field.name for field in dataclasses.fields(ExportOptions)]
    return {
        name: metadata[name]
        for name in names
        if name != "precision" and metadata.get(name) is not None
    }
