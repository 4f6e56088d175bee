import dataclasses
import math

from tfdml.checks import check, check_number, check_options


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Random augmentation of training images, drawn anew for every step and image.

    The defaults change nothing.

    Args:
        crop: Smallest share of the area that a random crop keeps, above 0; 1 keeps all.
        aspect: Largest factor by which the aspect ratio of a crop differs from that of the image,
            either way, >= 1 and finite; 1 for none. A crop of the whole area keeps its shape.
        flip: Whether to mirror each image, left to right, with probability 1/2. Not for characters.
        symmetries: 4 turns all images of a batch by the same random multiple of 90 degrees, 8 also
            mirrors half of the batches: to a loss that compares the images of a batch, turned
            characters are further classes. A loss with proxies or a memory mixes them with the
            upright ones. For square images; 1 for none.
        rotation: Largest rotation either way, in degrees, 0 to 180; 0 for none.
        zoom: Largest relative change of scale either way, 0 to below 1; 0 for none.
        shift: Largest shift along each axis, as a share of the side, 0 to below 1; 0 for none.
        colour: Largest relative change of brightness and of contrast either way, 0 to 0.5; 0 for
            none. Saturation changes by up to twice as much.

    Raises:
        TypeError: If a value other than `flip` is not a number.
        ValueError: If a value is out of its range.
    """

    crop: float = 1.0
    aspect: float = 1.0
    flip: bool = False
    symmetries: int = 1
    rotation: float = 0.0
    zoom: float = 0.0
    shift: float = 0.0
    colour: float = 0.0

    def __post_init__(self):
        check_number(**{name: value for name, value in vars(self).items() if name != "flip"})
        for name, holds, range_ in (
            ("crop", 0 < self.crop <= 1, "> 0 and <= 1"),
            ("aspect", 1 <= self.aspect < math.inf, ">= 1 and finite"),
            ("flip", isinstance(self.flip, bool), "true or false"),
            ("symmetries", self.symmetries in (1, 4, 8), "1, 4 or 8"),
            ("rotation", 0 <= self.rotation <= 180, ">= 0 and <= 180 degrees"),
            ("zoom", 0 <= self.zoom < 1, ">= 0 and < 1"),
            ("shift", 0 <= self.shift < 1, ">= 0 and < 1"),
            ("colour", 0 <= self.colour <= 0.5, ">= 0 and <= 0.5"),
        ):
            check(holds, f"`{name}` must be {range_}", **{name: getattr(self, name)})

    @property
    def crops(self):
        return self.crop < 1

    @property
    def warps(self):
        return bool(self.rotation or self.zoom or self.shift)

    def changed(self, **values):
        """A copy with some fields changed; a misspelt field raises a ValueError."""
        check_options("augmentation", values, [field.name for field in dataclasses.fields(self)])
        return dataclasses.replace(self, **values)
