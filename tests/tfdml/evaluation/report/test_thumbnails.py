import io

import numpy as np
import pytest
from PIL import Image

from tfdml.evaluation.report import thumbnails as module


def thumbnails(*given):
    sheets, images = module.thumbnails(*given)
    return {**sheets, "images": images}


def size(sheets):
    return sum(map(len, sheets["images"]))


def cell(sheets, row):
    """The pixels of a picture, (height, width, 4)."""
    width, height, columns = (sheets[name] for name in ("width", "height", "columns"))
    number, place = divmod(row, columns * sheets["rows"])
    picture = Image.open(io.BytesIO(sheets["images"][number])).convert("RGBA")
    top, left = place // columns * height, place % columns * width
    return np.asarray(picture)[top : top + height, left : left + width].astype(int)


def noise(row):
    return np.random.default_rng(row).integers(0, 256, (200, 300, 3)).astype(np.uint8)


@pytest.mark.parametrize("channels", [(), (1,), (3,)])
def test_draws_every_picture_in_its_place(channels, monkeypatch):
    monkeypatch.setattr(module, "_SHEET_SIDE", 100)  # several sheets, the last not full
    sheets = thumbnails(lambda row: np.full((48, 48, *channels), 5 * row, np.uint8), 40, 1e6)
    assert sheets["width"] == sheets["height"]
    assert len(sheets["images"]) == -(-40 // (sheets["columns"] * sheets["rows"])) > 1
    for row in range(40):
        pixels = cell(sheets, row)
        assert np.abs(pixels[1:-1, 1:-1, :3] - 5 * row).max() <= 6
        assert pixels[1:-1, 1:-1, 3].min() > 250
        assert pixels[[0, -1], :, 3].max() == pixels[:, [0, -1], 3].max() == 0


def test_keeps_the_shape_of_each_picture():
    def picture_of(row):
        return np.full((32, 64, 3) if row else (64, 32, 3), 200, np.uint8)

    sheets = thumbnails(picture_of, 9, 1e6)
    assert sheets["width"] == 2 * sheets["height"]
    assert cell(sheets, 1)[2:-2, 3:-3, 3].min() > 250
    seen = np.flatnonzero(cell(sheets, 0)[sheets["height"] // 2, :, 3] > 128)
    assert abs(len(seen) - sheets["height"] / 2) <= 2
    assert abs(seen.mean() - (sheets["width"] - 1) / 2) <= 1


def test_fits_the_bytes_and_goes_no_lower_than_small_pictures():
    limits = 1.6e5, 1.6e4, 5e3, 0
    found = [thumbnails(noise, 5, most) for most in limits]
    assert all(size(sheets) <= most for sheets, most in zip(found[:3], limits[:3], strict=True))
    widths = [sheets["width"] for sheets in found[:3]]
    assert widths == sorted(set(widths), reverse=True)
    assert found[3]["width"] * found[3]["height"] == pytest.approx(32 * 32, rel=0.6)


def test_lowers_the_quality_where_the_few_were_too_hopeful(monkeypatch):
    monkeypatch.setattr(module, "_TRIED", 1)
    tried = int(np.random.default_rng(0).permutation(20)[0])

    def picture_of(row):  # the one tried takes next to nothing
        return np.zeros((64, 64), np.uint8) if row == tried else noise(row)[:64, :64]

    sheets, fine = (thumbnails(picture_of, 20, most) for most in (25_000, 1e6))
    assert (sheets["width"], sheets["height"]) == (fine["width"], fine["height"])
    assert size(sheets) <= 25_000 < size(fine)


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 1, 3)])
def test_copes_with_odd_shapes(shape):
    sheets = thumbnails(lambda row: np.full(shape, 255, np.uint8), 1, 1e6)
    assert cell(sheets, 0)[..., 3].max() > 200
