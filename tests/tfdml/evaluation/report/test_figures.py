import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from tfdml.evaluation.pair_scores import equal_error_rate, sample_pairs
from tfdml.evaluation.report import figures
from tfdml.evaluation.report.figures import plot_retrievals, plot_score_distributions

LINE, LABELS = np.array([[0.5], [1.0], [2.5], [4.6], [7.0]]), np.array([0, 1, 0, 0, 1])
NAMES = [f"b/a very long name  of a file {i} $x$.png" for i in range(5)]


@pytest.fixture
def two_classes(rng):
    labels = np.repeat([4, 9], 30)
    return np.where(labels == 4, 0.0, 3.0)[:, None] + rng.normal(size=(60, 2)), labels


def similarity_of_pairs(a, b):
    return np.cos(np.abs(a - b)).sum(axis=1)


@pytest.mark.parametrize(("similarity", "levels"), [(None, 2), (similarity_of_pairs, 1)])
def test_draws_the_distributions_of_scores(similarity, levels, tmp_path, two_classes, monkeypatch):
    monkeypatch.setattr(figures, "_PAIRS", 500)
    (x, labels), picture = two_classes, tmp_path / "scores.png"
    scores = {"Euclidean distance": (x, lambda a, b: -np.linalg.norm(a - b, axis=1))}
    if similarity:
        scores = {"learned similarity": (x, similarity), **scores}
    for number in (1, 2) if levels == 2 else ():
        signs = np.sign(x[:, [number - 1]])  # of unit length
        scores[f"distance at level {number}"] = (signs, lambda a, b: -np.abs(a - b)[:, 0])
    options = {"similarity": similarity, "levels": levels, "seed": 3}
    figure = plot_score_distributions(x, labels, picture, **options)
    assert Image.open(picture).size == (500 * len(scores), 400)
    pairs = sample_pairs(labels, 500, seed=3)
    for axes, (name, (rows, score)) in zip(figure.axes, scores.items(), strict=True):
        values = [score(rows[of[:, 0]], rows[of[:, 1]]) for of in pairs]
        assert axes.get_title() == f"{name}: equal error rate {equal_error_rate(*values):.1%}"
        values = values if name == "learned similarity" else np.negative(values)
        bins = np.histogram_bin_edges(values, 50)
        positive, negative = (np.histogram(of, bins)[0].max() / 500 for of in values)
        drawn = {patch.get_label(): patch.get_xy()[:, 1].max() for patch in axes.patches}
        assert drawn == pytest.approx({"positive": positive, "negative": negative})


@pytest.mark.parametrize(
    ("similarity", "channels"), [(None, (3,)), (lambda a, b: a @ b.T / 10, (1,))]
)
def test_draws_what_queries_find(similarity, channels, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "_QUERIES", 5)
    monkeypatch.setattr(figures, "_FOUND", 3)

    def picture_of(row):
        return np.full((6, 4, *channels), 10 * row, np.uint8)

    options = {"similarity": similarity, "names": NAMES}
    figure = plot_retrievals(picture_of, LINE, LABELS, tmp_path / "r.png", **options)
    assert Image.open(tmp_path / "r.png").size == (520, 800)
    scores = similarity(LINE, LINE) if similarity else -np.abs(LINE - LINE.T)
    np.fill_diagonal(scores, -np.inf)
    queries = []
    for first, *cells in np.reshape(figure.axes, (5, 4)):
        query, *rows = (axes.get_images()[0].get_array().max() // 10 for axes in (first, *cells))
        queries.append(query)
        assert rows == scores[query].argsort()[::-1][:3].tolist()
        assert (first.get_xlabel(), first.get_title()) == ("query", NAMES[query][-20:])
        for cell, row in zip(cells, rows, strict=True):
            numbers = f"D {abs(LINE[query, 0] - LINE[row, 0]):.2f}"
            learned = f"S {scores[query, row]:#.3g}  " if similarity else ""
            assert (cell.get_xlabel(), cell.get_title()) == (learned + numbers, NAMES[row][-20:])
            frame = ("green", "-") if LABELS[row] == LABELS[query] else ("red", "--")
            for spine in cell.spines.values():
                assert to_rgb(spine.get_edgecolor()) == to_rgb(f"tab:{frame[0]}")
                assert spine.get_linestyle() == frame[1]
    assert sorted(queries) == [0, 1, 2, 3, 4]
    assert ("learned similarity" in figure.get_supxlabel()) == bool(similarity)


def test_queries_are_random_and_photographs_drawn_small(two_classes, monkeypatch, without_figures):
    monkeypatch.setattr(figures, "_FOUND", 1)
    monkeypatch.setattr(figures, "_QUERIES", 2)

    def shown(seed):
        options = {"similarity": None, "names": 60 * [""], "seed": seed}
        figure = plot_retrievals(photograph, *two_classes, "r.png", **options)
        pictures = [axes.get_images()[0].get_array() for axes in figure.axes]
        assert [picture.shape for picture in pictures] == 4 * [(384, 512, 3)]
        return [int(picture[0, 0, 0]) for picture in pictures]

    def photograph(row):
        return np.full((600, 800, 3), row, np.uint8)

    assert shown(1) == shown(1) != shown(2)
