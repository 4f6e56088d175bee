import numpy as np
import pytest

from tfdml.evaluation import nearest_neighbours
from tfdml.evaluation.report.page import write_report

HOSTILE = (
    "<script>alert(1)</script>",
    "\"/></script><img src=x onerror='alert(2)'>",
    "$title ${x} &amp;",
)


@pytest.fixture
def hostile():
    """Names that would break out of a page that does not escape them."""
    return HOSTILE


@pytest.fixture
def colour_of():
    """The colour of the picture of a row."""
    return lambda row: (37 * row % 256, 200, 4 * row)


@pytest.fixture
def report(tmp_path, colour_of):
    """Writes the report of random rows of four classes; more options replace those of it."""

    def write(images=60, folder="report", **options):
        rng = np.random.default_rng(0)
        labels = np.sort(rng.integers(0, 4, images)) + 2**60
        embeddings = rng.normal(size=(images, 5)) + (labels % 4)[:, None]
        nearest = nearest_neighbours(embeddings, 1)[:, 0]
        hits = (labels[nearest] == labels).astype(float)
        settings = {
            "title": "A report",
            "scores": {"recall@1": hits.mean(), "recall@4": 0.875, "nmi": 0.5},
            "per_query": {"recall@1": hits, "map@r": rng.uniform(size=images)},
            "picture_of": lambda row: np.full((24, 36, 3), colour_of(row), np.uint8),
            **options,
        }
        return write_report(embeddings, labels, tmp_path / folder, **settings)

    return write
