import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from tfdml.evaluation.report.charts import histogram_chart, recall_chart, score_bar
from tfdml.evaluation.report.histograms import Histograms


def texts(drawing):
    return ["".join(text.itertext()) for text in drawing.iter("text")]


def points(drawing, kind):
    (path,) = [path for path in drawing.iter("path") if path.get("class") == kind]
    return np.array([point.split() for point in path.get("d")[1:].split("L")], float)


def test_draws_recall_on_a_logarithmic_axis():
    curve = {1: 0.5, 2: 0.6, 4: 0.8, 8: 0.9}
    drawing = ElementTree.fromstring(recall_chart(curve, {1: 0.5, 4: 0.8}, {4: (0.75, 0.85)}))
    line = points(drawing, "curve")
    steps = np.diff(line[:, 0])
    np.testing.assert_allclose(steps, steps[0], atol=0.11)
    rises = np.diff(line[:, 1])
    np.testing.assert_allclose(rises / rises[0], [1, 2, 1], atol=0.02)
    dots = [[float(dot.get(name)) for name in ("cx", "cy")] for dot in drawing.iter("circle")]
    np.testing.assert_allclose(dots, line[[0, 2]], atol=0.01)
    whisker = points(drawing, "whisker")
    np.testing.assert_allclose(whisker[:, 0], line[2, 0])
    np.testing.assert_allclose(whisker.mean(axis=0), line[2], atol=0.1)
    assert [dot.find("title").text for dot in drawing.iter("circle")] == [
        "Recall@1: 0.5000",
        "Recall@4: 0.8000",
    ]
    assert {"1", "2", "5", "8", "0.5", "0.6"} <= set(texts(drawing))


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_draws_a_flat_curve(value):
    drawing = ElementTree.fromstring(recall_chart({1: value, 2: value}, {1: value}, {}))
    line = points(drawing, "curve")
    assert line[0, 1] == line[1, 1]
    assert np.isfinite(line).all()


def test_draws_the_histograms_with_their_means():
    histograms = Histograms(
        np.array([0.0, 1.0, 2.0]),
        np.array([0.75, 0.25]),
        np.array([0.0, 1.0]),
        0.8,
        1.6,
        4,
        9,
        None,
    )
    drawing = ElementTree.fromstring(histogram_chart(histograms))
    positive, negative = (points(drawing, f"bars {kind}") for kind in ("positive", "negative"))
    floor, left, right = positive[0, 1], positive[0, 0], positive[-1, 0]
    heights = floor - positive[1::2, 1][:2]
    np.testing.assert_allclose(heights[0], 3 * heights[1], atol=0.5)
    np.testing.assert_allclose(floor - negative[3, 1], 4 * heights[1], atol=0.5)
    for kind, mean in (("positive", 0.8), ("negative", 1.6)):
        places = points(drawing, f"mean {kind}")[:, 0]
        np.testing.assert_allclose(places, left + (right - left) * mean / 2, atol=0.1)
    assert {"positive, mean 0.800", "negative, mean 1.60"} <= set(texts(drawing))


def test_draws_collapsed_distances():
    one = np.array([1.0])
    drawing = histogram_chart(Histograms(np.array([0.0, 1e-5]), one, one, 0.0, 0.0, 1, 2, None))
    assert "nan" not in drawing
    assert "inf" not in drawing
    ElementTree.fromstring(drawing)


def test_draws_a_score_with_its_interval():
    drawing = score_bar(0.25, (0.2, 0.3))
    assert 'width="25.00"' in drawing
    assert re.search(r"M20.00 6H30.00", drawing)
    assert "path" not in score_bar(0.25, None)
    assert "M0.00 6H100.00" in score_bar(0.5, (-0.1, 1.2))
