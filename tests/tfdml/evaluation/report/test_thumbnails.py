import io

import numpy as np
import pytest
from PIL import Image

from tfdml.evaluation.report import thumbnails as module
from tfdml.evaluation.report.thumbnails import thumbnails


def cell(sheets, row):
    """The pixels of a picture, (height, width, 4)."""
    number, place = divmod(row, sheets.columns * sheets.rows)
    picture = Image.open(io.BytesIO(sheets.images[number])).convert("RGBA")
    top, left = (place // sheets.columns) * sheets.height, place % sheets.columns * sheets.width
    return np.asarray(picture)[top : top + sheets.height, left : left + sheets.width].astype(int)


@pytest.mark.parametrize("channels", [(), (1,), (3,)])
def test_draws_every_picture_in_its_place(channels, monkeypatch):
    monkeypatch.setattr(module, "_SHEET_SIDE", 100)  # several sheets, the last not full
    sheets = thumbnails(lambda row: np.full((48, 48, *channels), 5 * row, np.uint8), 40, 1e6)
    assert sheets.width == sheets.height
    assert len(sheets.images) == -(-40 // (sheets.columns * sheets.rows)) > 1
    for row in range(40):
        pixels = cell(sheets, row)
        assert np.abs(pixels[1:-1, 1:-1, :3] - 5 * row).max() <= 6
        assert pixels[1:-1, 1:-1, 3].min() > 250
        assert pixels[[0, -1], :, 3].max() == pixels[:, [0, -1], 3].max() == 0


def test_keeps_the_shape_of_each_picture():
    def picture_of(row):
        return np.full((32, 64, 3) if row else (64, 32, 3), 200, np.uint8)

    sheets = thumbnails(picture_of, 9, 1e6)
    assert sheets.width == 2 * sheets.height
    wide, tall = cell(sheets, 1), cell(sheets, 0)
    assert wide[2:-2, 3:-3, 3].min() > 250
    seen = np.flatnonzero(tall[sheets.height // 2, :, 3] > 128)
    assert abs(len(seen) - sheets.height / 2) <= 2
    assert abs(seen.mean() - (sheets.width - 1) / 2) <= 1


def noise(row):
    return np.random.default_rng(row).integers(0, 256, (200, 300, 3)).astype(np.uint8)


def test_fits_the_bytes():
    sizes = []
    for most_bytes in (4e5, 4e4, 1.2e4):
        sheets = thumbnails(noise, 12, most_bytes)
        assert sum(map(len, sheets.images)) <= most_bytes
        sizes.append(sheets.width)
    assert sizes == sorted(set(sizes), reverse=True)


def test_lowers_the_quality_where_the_few_were_too_hopeful(monkeypatch):
    monkeypatch.setattr(module, "_TRIED", 1)

    def picture_of(row):
        # The picture tried is the one that takes next to nothing.
        return np.zeros((64, 64), np.uint8) if row == tried else noise(row)[:64, :64]

    tried = int(np.random.default_rng(0).permutation(20)[0])
    sheets = thumbnails(picture_of, 20, 25_000)
    fine = thumbnails(picture_of, 20, 1e6)
    assert (sheets.width, sheets.height) == (fine.width, fine.height)
    assert sum(map(len, sheets.images)) <= 25_000 < sum(map(len, fine.images))


def test_goes_no_lower_than_small_pictures():
    sheets = thumbnails(noise, 5, 0)
    assert sheets.width * sheets.height == pytest.approx(32 * 32, rel=0.6)


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 1, 3), (8, 8, 1)])
def test_copes_with_odd_shapes(shape):
    sheets = thumbnails(lambda row: np.full(shape, 255, np.uint8), 1, 1e6)
    assert cell(sheets, 0)[..., 3].max() > 200


def test_rejects_what_is_no_picture():
    with pytest.raises(
        TypeError, match=r"`picture_of\(\d\)` must be uint8. Received: dtype='float64"
    ):
        thumbnails(lambda row: np.zeros((8, 8)), 3, 1e6)
    for shape in ((8,), (8, 8, 4), (8, 8, 2), (0, 8), (2, 8, 8, 3)):
        with pytest.raises(ValueError, match=r"must have shape \(height, width\) or"):
            thumbnails(lambda row, shape=shape: np.zeros(shape, np.uint8), 3, 1e6)


def test_photographs_are_not_held_at_their_size(monkeypatch):
    sides, cell = [], module._cell
    monkeypatch.setattr(
        module,
        "_cell",
        lambda picture, shape: sides.append(max(picture.size)) or cell(picture, shape),
    )
    thumbnails(lambda row: np.full((600, 800, 3), row, np.uint8), 9, 1e6)
    assert sides.count(800) == 9  # one after the other, when the size is known
    assert max(side for side in sides if side != 800) == module._TRIED_SIDE
