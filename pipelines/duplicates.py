"""Images that are there twice, and odd ones, as their pixels show it: no model is needed."""

import collections
import hashlib
import io
import os
import warnings

import numpy as np
import scipy.fft
import scipy.sparse.csgraph
from PIL import Image

from pipelines.corrections import EXCLUDE, read_corrections, write_corrections
from pipelines.records import read
from tfdml.checks import check
from tfdml.files import folder_of
from tfdml.images.image_headers import open_image
from tfdml.quiet import progress
from tfdml.threads import in_order

_SIDE, _LOW = 32, 8  # pixels of the picture that is hashed, its lowest frequencies
_BITS = 6  # of 64 that may differ between near-duplicates
_TINY, _LONG, _FLAT = 32, 4.0, 2.0  # shorter side in pixels, aspect, deviation of the grey values
_PAIRS = 2**24  # compared at once


def find_duplicates(paths):
    """Finds images of one content, near-duplicates and odd images.

    Near-duplicates differ in at most 6 of the 64 bits of a perceptual hash, or in those of the hash
    of one and the mirror image of the other: the signs of the lowest frequencies of the discrete
    cosine transform of 32 x 32 grey pixels, beside their median. It holds for images that are
    encoded anew, resized or mirrored, and for small cuts at best; the task `audit` of
    `evaluate.py` finds more.

    Returns:
        Triples (row, finding, score, other) in the order of the rows: "identical" and "near" with
        the earlier row beside it and the share of equal bits, "odd" with the reason and 1.0. A
        path that is there twice, as for several boxes in an image, counts once.
    """
    contents, hashes, found = {}, {}, []
    looked_at = np.sort(np.unique(paths, return_index=True)[1]).tolist()
    seen = in_order(_look, [paths[row] for row in looked_at], 1 + (os.cpu_count() or 1))
    for row, (digest, bits, reason) in zip(
        looked_at, progress("Looking at images", seen, total=len(looked_at)), strict=True
    ):
        first = contents.setdefault(digest, row)
        if first != row:
            found.append((row, "identical", 1.0, first))
        if reason:
            found.append((row, "odd", 1.0, reason))
        if first == row and reason != "one colour":
            hashes[row] = bits
    if hashes:
        found += _near(np.array([*hashes]), *np.array([*hashes.values()]).T)
    return sorted(found, key=lambda each: each[0])


def pictures_of(split, table=None, data_dir=""):
    """(n,) row numbers: of each image the first of its class with its picture.

    `DistinctPictures` takes them.

    Args:
        split: `Split` of images in files.
        table: CSV file that `python -m pipelines.check --duplicates` or `evaluate.py audit` wrote:
            the images of the lines whose `suggestion` is `exclude`, and their `other`. If None,
            `find_duplicates` looks at the images.
        data_dir: Folder of the dataset, or a file in it, that paths of the table are relative to.

    Raises:
        ValueError: If the images are not in files, or the table names none of them.
    """
    expectation = "images that are there twice are found among files"
    check(split.holds_paths and split.labels.ndim == 1, expectation, split=split)
    if table is None:
        found = find_duplicates(split.images)
        pairs = [(row, other) for row, finding, _, other in found if finding != "odd"]
    else:
        lines = read_corrections(table, "other", EXCLUDE, split.images, data_dir)
        pairs = [(row, other) for row, *_, other in lines if other is not None]
    rows, others = np.array(pairs, int).reshape(-1, 2).T
    same = split.labels[rows] == split.labels[others]
    count = len(split.labels)
    joined = scipy.sparse.coo_matrix((same[same], (rows[same], others[same])), (count, count))
    pictures = scipy.sparse.csgraph.connected_components(joined, directed=False)[1]
    return np.unique(pictures, return_index=True)[1][pictures]


def write_duplicates(paths, data_dir, file):
    """Writes what `find_duplicates` finds as a table; returns a sentence on it."""
    lines, counts = [], collections.Counter()
    folder = folder_of(data_dir)
    names = [os.path.relpath(path, folder) for path in paths]
    for row, finding, score, other in find_duplicates(paths):
        counts[finding] += 1
        beside = ("look", other) if finding == "odd" else (EXCLUDE, names[other])
        lines.append((names[row], finding, f"{score:.4f}", *beside))
    write_corrections(file, lines)
    found = ", ".join(f"{count:,} {finding}" for finding, count in sorted(counts.items()))
    return f"Found twice or odd: {found or 'none'}. {file}"


def _near(rows, codes, turned):
    """The nearest earlier row of each, if it is near enough."""
    step = max(1, _PAIRS // len(rows))
    for start in range(0, len(rows), step):
        some = slice(start, start + step)
        differing = np.minimum(
            np.bitwise_count(codes[some, None] ^ codes),
            np.bitwise_count(turned[some, None] ^ codes),
        )
        later = np.arange(len(rows)) >= np.arange(start, start + len(differing))[:, None]
        differing[later] = 64
        nearest = differing.argmin(axis=1)
        for place in np.flatnonzero(differing.min(axis=1) <= _BITS):
            score = 1 - differing[place, nearest[place]] / 64
            yield int(rows[start + place]), "near", float(score), int(rows[nearest[place]])


def _look(path):
    """Digest of the content of a file, its hash and that of the mirror image, why it is odd."""
    contents = read(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pillow, for what others have checked
        image = open_image(io.BytesIO(contents))
        width, height = image.size
        image.draft("L", (_SIDE, _SIDE))
        grey = image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)
    pixels = np.asarray(grey, np.float32)
    low = scipy.fft.dctn(pixels, norm="ortho")[:_LOW, :_LOW]
    signs = np.where(np.arange(_LOW) % 2, -1, 1)
    bits = [_packed(low), _packed(low * signs)]
    reason = ""
    if pixels.std() < _FLAT:
        reason = "one colour"
    elif min(width, height) < _TINY:
        reason = f"{width} x {height} pixels"
    elif max(width, height) > _LONG * min(width, height):
        reason = f"{width} x {height} pixels, aspect above {_LONG:g}"
    return hashlib.sha256(contents).digest(), bits, reason


def _packed(low):
    values = low.reshape(-1)[1:]  # without the mean
    return np.packbits(np.append(values > np.median(values), False)).view(np.uint64)[0]
