"""Results of a table as CSV, as a table, and compared with a baseline."""

import matplotlib.image
import pytest
from scipy.stats import false_discovery_control

from tfdml.experiment import results
from tfdml.runs.table import Table

KEYS = {"trial": "", "fold": "", "seed": 0, "setting": "{}", "digest": "0", "classes": "test"}
LINE = {"row": "a", **KEYS, "ranked_by": "distance", "untrained": 0.25}


def test_p_values_are_corrected_as_by_hand():
    # Sorted 0.01 × 4, 0.02 × 3, 0.03 × 2 → 0.06, as above, 0.5 × 1.
    assert results.holm([0.02, 0.5, 0.01, 0.03]) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert results.holm([0.9, 0.8]) == [1, 1]
    p_values = [0.001, 0.2, 0.04]
    assert all(false_discovery_control(p_values) <= results.holm(p_values))


def test_lines_are_read_as_they_were_written(tmp_path):
    lines = [LINE | {"recall@1": 0.5, "seconds": 2.0}, LINE | {"seed": 1, "map@r": 0.25}]
    results.write(tmp_path / "a.csv", lines)
    read = results.read(tmp_path / "a.csv")
    assert [line.get("recall@1") for line in read] == [0.5, None]
    assert [line.get("map@r") for line in read] == [None, 0.25]
    assert [line["seed"] for line in read] == ["0", "1"]
    assert results.read(tmp_path / "none.csv") == []
    (tmp_path / "b.csv").write_text("row,seed\na,0\n")
    with pytest.raises(ValueError, match=r"b\.csv must have the columns of results"):
        results.read(tmp_path / "b.csv")


def test_the_plot_has_a_point_for_each_training(tmp_path):
    lines = [LINE | {"recall@1": score} for score in (0.2, 0.4)]
    table = Table("some", rows={"a": {}})
    inked = []
    for count in (0, 1, 2):
        results.plot(table, lines[:count], tmp_path / "results.png")
        pixels = matplotlib.image.imread(tmp_path / "results.png")
        inked.append(int((pixels[..., 2] > pixels[..., 0] + 0.2).sum()))  # the blue ones
    assert 0 == inked[0] < inked[1] < inked[2]
