import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from tfdml.evaluation import rank
from tfdml.evaluation.report.charts import histogram_chart, recall_chart

SVG = "{http://www.w3.org/2000/svg}"


def parsed(chart):
    """The chart, which has no styles and no colours but those of the page."""
    assert not re.search(r"style|#[0-9a-f]{6}|nan|inf", chart)
    return ElementTree.fromstring(chart)


def places(drawing, kind):
    """Places of a line or of dots, from the lower left."""
    (group,) = (group for group in drawing.iter(f"{SVG}g") if group.get("class") == kind)
    dots = [(use.get("x"), use.get("y")) for use in group.iter(f"{SVG}use")]
    path = next(group.iter(f"{SVG}path")).get("d")
    return np.array(dots or re.findall(r"[ML] (\S+) (\S+)", path), float) * [1, -1]


def texts(drawing):
    return ["".join(text.itertext()) for text in drawing.iter(f"{SVG}text")]


def test_draws_recall_on_a_logarithmic_axis():
    curve = {1: 0.5, 2: 0.6, 4: 0.8, 8: 0.9}
    drawing = parsed(recall_chart(curve, {1: 0.5, 4: 0.8}, {4: (0.75, 0.85)}))
    line = places(drawing, "curve")
    steps = np.diff(line, axis=0)
    np.testing.assert_allclose(steps[:, 0], steps[0, 0], atol=1e-4)
    np.testing.assert_allclose(steps[:, 1] / steps[0, 1], [1, 2, 1], atol=1e-4)
    np.testing.assert_allclose(places(drawing, "dots"), line[[0, 2]], atol=1e-4)
    interval = places(drawing, "interval")
    np.testing.assert_allclose(interval.mean(axis=0), line[2], atol=1e-4)
    np.testing.assert_allclose(np.diff(interval, axis=0), [[0, steps[0, 1]]], atol=1e-4)
    assert {"1", "2", "5", "0.5", "K, number of neighbours", "Recall@K"} <= set(texts(drawing))
    assert drawing.get("aria-label") == "Recall at K: Recall@1 0.500, Recall@4 0.800"


def test_draws_the_histogram_with_its_means():
    x, labels = np.array([0.0, 1.0, 2.0, -4.0, 6.0, 7.0]), np.array([0, 0, 0, 1, 2, 2])
    drawing = parsed(histogram_chart(rank(x[:, None], labels, histogram=True).histogram))
    first, second = np.triu_indices(6, 1)
    distances, same = np.abs(x[first] - x[second]), labels[first] == labels[second]
    ends = places(drawing, "positive")[[0, -1], 0]
    heights, shares = [], []
    for kind, values in (("positive", distances[same]), ("negative", distances[~same])):
        heights.append(np.ptp(places(drawing, kind)[:, 1]))
        shares.append(np.histogram(values, 60, (1, 11))[0].max() / len(values))
        place = np.interp(values.mean(), [1, 11], ends)
        np.testing.assert_allclose(places(drawing, f"mean-{kind}")[:, 0], place, atol=1e-3)
        assert f"{kind}, mean {values.mean():#.3g}" in texts(drawing)
    assert heights[0] / heights[1] == pytest.approx(shares[0] / shares[1], rel=1e-4)
    assert drawing.get("aria-label").startswith("Distances of pairs: negative, mean")


@pytest.mark.parametrize("scale", [0.0, 1e-200, 1e200])
def test_draws_collapsed_and_extreme_distances(scale):
    x = scale * np.array([[0.0], [1.0], [3.0], [4.0]])
    parsed(histogram_chart(rank(x, np.array([0, 0, 1, 1]), histogram=True).histogram))
