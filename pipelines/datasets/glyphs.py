"""Characters of the fonts that matplotlib ships: a dataset that needs no download."""

import collections
import pathlib
import unicodedata

import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageFont
from scipy.cluster.hierarchy import DisjointSet

from pipelines.datasets.image_list import ImageList
from pipelines.preprocessing import Augmentation
from pipelines.split import Dataset

# The text faces. Computer Modern is left out: its files are not Unicode-encoded.
FACES = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
)
SIDE = 28  # pixels of an image
GLYPH_SIDE = 20  # pixels of the longer side of a character in it
LEAST_FACES = 12  # faces that must have a character


def load(data_dir=None, skip_invalid=False, training=True):
    """About 2,080 character shapes in 12 to 16 fonts each, 28 × 28 grey, white on black.

    Every character is scaled to a longer side of 20 pixels and centred. Characters of one shape,
    such as Latin A, Greek Alpha and Cyrillic A, are one class: no image is in two classes. Classes
    alternate between training and test in the order of code points, beginning with training.
    """
    folder = pathlib.Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    files = [str(folder / f"{face}.ttf") for face in FACES]
    drawn = _draw(files)
    images, labels, class_names = [], [], {}
    for group in _equal_shapes(drawn):
        faces = collections.ChainMap(*(drawn[character] for character in group))
        if len(faces) >= LEAST_FACES:
            class_names[len(class_names)] = "".join(group)
            images += [faces[face] for face in sorted(faces)]
            labels += [len(class_names) - 1] * len(faces)
    parts = np.where(np.array(labels) % 2, "test", "train")
    splits = ImageList(np.stack(images)[..., None], labels, class_names, parts=parts).splits()
    augmentation = Augmentation(rotation=10.0, zoom=0.1, shift=0.05)
    return Dataset("glyphs", image_size=(SIDE, SIDE, 1), augmentation=augmentation, **splits)


def _draw(files):
    """{character: {face number: (SIDE, SIDE) uint8}} of characters that enough faces have."""
    encoded = [set(FT2Font(file).get_charmap()) for file in files]
    counts = collections.Counter(code for codes in encoded for code in codes)
    codes = sorted(code for code, count in counts.items() if count >= LEAST_FACES)
    characters = [chr(code) for code in codes if unicodedata.category(chr(code))[0] not in "CZM"]
    drawn = {character: {} for character in characters}
    for face, file in enumerate(files):
        font = ImageFont.truetype(file, 48, layout_engine=ImageFont.Layout.BASIC)
        for character in (c for c in characters if ord(c) in encoded[face]):
            mask = font.getmask(character, mode="L")
            if mask.getbbox():
                drawn[character][face] = _draw_one(mask)
    return drawn


def _draw_one(mask):
    glyph = Image.frombytes("L", mask.size, bytes(mask)).crop(mask.getbbox())
    scale = GLYPH_SIDE / max(glyph.size)
    width, height = (max(1, round(side * scale)) for side in glyph.size)
    glyph = glyph.resize((width, height), Image.Resampling.BOX)
    image = Image.new("L", (SIDE, SIDE))
    image.paste(glyph, ((SIDE - width) // 2, (SIDE - height) // 2))
    return np.asarray(image)


def _equal_shapes(drawn):
    """Groups characters that share an image, in the order of code points."""
    groups, first = DisjointSet(drawn), {}  # image -> the first character with it
    for character, faces in drawn.items():
        for image in faces.values():
            groups.merge(character, first.setdefault(image.tobytes(), character))
    return map(sorted, groups.subsets())
