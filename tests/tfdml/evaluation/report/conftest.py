import numpy as np
import pytest

from tfdml.evaluation import rank
from tfdml.evaluation.report.page import write_report


@pytest.fixture
def hostile():
    """Names that would break out of a page that does not escape them."""
    image = "\"/></script><img src=x onerror='alert(2)'>"
    return "<script>alert(1)</script>", image, "$title ${x} &amp;"


@pytest.fixture
def rows():
    """Embeddings and labels of 60 images of four classes."""
    rng = np.random.default_rng(0)
    labels = np.sort(rng.integers(0, 4, 60)) + 2**60
    return rng.normal(size=(60, 5)) + (labels % 4)[:, None], labels


@pytest.fixture
def report(tmp_path, rows):
    """Writes the report of the first rows; more options replace those of it."""

    def picture_of(row):
        return np.full((24, 36, 3), (37 * row % 256, 200, 4 * row), np.uint8)

    def write(images=60, folder="report", **options):
        data = [given[:images] for given in rows]
        settings = {
            "title": "A report",
            "scores": {"recall@1": 0.75, "recall@4": 0.875, "nmi": 0.5},
            "per_query": {"recall@1": np.arange(images) % 2, "map@r": np.linspace(0, 1, images)},
            "picture_of": picture_of,
            "ranking": rank(*data, nearest=10, histogram=True),
            **options,
        }
        return write_report(*data, tmp_path / folder, **settings)

    return write
