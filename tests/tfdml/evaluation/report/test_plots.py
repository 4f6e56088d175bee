import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from tfdml.evaluation.pairs import equal_error_rate, sample_pairs
from tfdml.evaluation.report import plots
from tfdml.evaluation.report.plots import plot_retrievals, plot_score_distributions


def rows_of_two_classes(rng):
    labels = np.repeat([4, 9], 30)
    return np.where(labels == 4, 0.0, 3.0)[:, None] + rng.normal(size=(60, 2)), labels


def test_draws_the_distributions_of_scores(tmp_path, rng):
    x, labels = rows_of_two_classes(rng)
    sizes = []

    def similarity(a, b):
        sizes.append(len(a))
        return np.cos(np.abs(a - b)).sum(axis=1)

    picture = tmp_path / "scores.png"
    figure = plot_score_distributions(x, labels, picture, similarity=similarity, pairs=2500, seed=3)
    assert Image.open(picture).size == (1000, 400)
    assert max(sizes) == 1024
    positive, negative = (x[pairs] for pairs in sample_pairs(labels, 2500, seed=3))
    distances = [
        np.linalg.norm(pairs[:, 0] - pairs[:, 1], axis=1) for pairs in (positive, negative)
    ]
    scores = [similarity(pairs[:, 0], pairs[:, 1]) for pairs in (positive, negative)]
    errors = [equal_error_rate(*scores), equal_error_rate(*(-values for values in distances))]
    assert 0 < errors[1] < errors[0] < 0.5
    for axes, kinds, error, name in zip(
        figure.axes,
        (scores, distances),
        errors,
        ("learned similarity", "Euclidean distance"),
        strict=True,
    ):
        assert axes.get_title() == f"{name}: equal error rate {error:.1%}"
        edges = np.histogram_bin_edges(np.concatenate(kinds), 50)
        for bars, values, color in zip(axes.containers, kinds, ("green", "red"), strict=True):
            heights = [bar.get_height() for bar in bars]
            np.testing.assert_allclose(heights, np.histogram(values, edges)[0] / 2500, atol=1e-12)
            assert to_rgb(bars[0].get_facecolor()) == to_rgb(f"tab:{color}")
        assert [text.get_text() for text in axes.get_legend().get_texts()] == [
            "positive",
            "negative",
        ]


def test_draws_the_distances_alone_without_a_similarity(tmp_path, rng):
    x, labels = rows_of_two_classes(rng)
    picture = tmp_path / "scores.png"
    (axes,) = plot_score_distributions(x, labels, picture, similarity=None).axes
    assert Image.open(picture).size == (500, 400)
    pairs = sample_pairs(labels, 10_000)
    negated = [-np.linalg.norm(x[kind[:, 0]] - x[kind[:, 1]], axis=1) for kind in pairs]
    error = equal_error_rate(*negated)
    assert axes.get_title() == f"Euclidean distance: equal error rate {error:.1%}"


def test_draws_the_distances_at_each_level(tmp_path, rng):
    x, labels = rows_of_two_classes(rng)
    levels = rng.normal(size=(60, 2)), 5 * x
    picture = tmp_path / "scores.png"
    options = {"similarity": None, "levels": 2, "pairs": 500}
    figure = plot_score_distributions(np.concatenate(levels, axis=1), labels, picture, **options)
    assert Image.open(picture).size == (1500, 400)
    pairs = sample_pairs(labels, 500)
    for axes, level, number in zip(figure.axes[1:], levels, (1, 2), strict=True):
        rows = level / np.linalg.norm(level, axis=1, keepdims=True)
        left, right = (rows[[kind[:, side] for kind in pairs]] for side in (0, 1))
        error = equal_error_rate(*-np.linalg.norm(left - right, axis=2))
        assert axes.get_title() == f"distance at level {number}: equal error rate {error:.1%}"


@pytest.mark.parametrize("as_callable", [False, True])
@pytest.mark.parametrize("channels", [(), (1,), (3,)])
def test_draws_what_queries_find(as_callable, channels, tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "_ROWS_AT_ONCE", 3)
    x, labels = np.array([[0.0], [1.0], [2.5], [4.5], [7.0]]), np.array([0, 1, 0, 0, 1])
    images = np.full((5, 6, 4, *channels), 1, np.uint8)
    images *= (10 * np.arange(5)).reshape(5, *([1] * (images.ndim - 1))).astype(np.uint8)
    picture = tmp_path / "retrievals.png"
    figure = plot_retrievals(
        images.__getitem__ if as_callable else images,
        x,
        labels,
        picture,
        similarity=lambda a, b: a @ b.T / 10,
        queries=[1, 3],
        top=3,
    )
    assert Image.open(picture).size == (520, 320)
    # By the product the rows found are the largest: 4 3 2 of 1, and 4 2 1 of 3.
    expected = [(1, [4, 3, 2]), (3, [4, 2, 1])]
    assert len(figure.axes) == 8
    assert "learned similarity" in figure.get_supxlabel()
    for axes, (query, found) in zip(np.reshape(figure.axes, (2, 4)), expected, strict=True):
        assert [np.max(cell.get_images()[0].get_array()) for cell in axes] == [
            10 * row for row in (query, *found)
        ]
        assert axes[0].get_xlabel() == "query"
        for cell, row in zip(axes[1:], found, strict=True):
            score, distance = x[query, 0] * x[row, 0] / 10, abs(x[query, 0] - x[row, 0])
            assert cell.get_xlabel() == f"S {score:#.3g}  D {distance:.2f}"
            color, line = ("green", "-") if labels[row] == labels[query] else ("red", "--")
            for spine in cell.spines.values():
                assert to_rgb(spine.get_edgecolor()) == to_rgb(f"tab:{color}")
                assert spine.get_linestyle() == line


def test_draws_the_nearest_without_a_similarity(tmp_path):
    x, images = np.array([[0.0], [1.0], [2.5], [4.5]]), 10 * np.ones((4, 2, 2), np.uint8)
    images *= np.arange(4, dtype=np.uint8)[:, None, None]
    figure = plot_retrievals(
        images, x, np.zeros(4, int), tmp_path / "r.png", similarity=None, queries=[1], top=2
    )
    shown = [(np.max(a.get_images()[0].get_array()), a.get_xlabel()) for a in figure.axes]
    assert shown == [(10, "query"), (0, "D 1.00"), (20, "D 1.50")]
    assert "learned similarity" not in figure.get_supxlabel()


def test_photographs_are_drawn_small(tmp_path):
    images = np.full((3, 600, 800, 3), 90, np.uint8)
    options = {"similarity": None, "queries": [0], "top": 2}
    rows, labels = np.eye(3), np.zeros(3, int)
    figure = plot_retrievals(images, rows, labels, tmp_path / "r.png", **options)
    shapes = {axes.get_images()[0].get_array().shape for axes in figure.axes}
    assert shapes == {(384, 512, 3)}
    with pytest.raises(TypeError, match=r"`images\(0\)` must be uint8"):
        plot_retrievals(images / 255, rows, labels, tmp_path / "r.png", **options)


def test_draws_queries_at_random_and_no_more_than_there_are(tmp_path, rng):
    x, labels = rows_of_two_classes(rng)
    images = np.arange(60 * 4, dtype=np.uint8).reshape(60, 2, 2)
    options = {"path": tmp_path / "r.png", "similarity": lambda a, b: a @ b.T}

    def shown(count, **more):
        figure = plot_retrievals(images[:count], x[:count], labels[:count], **options, **more)
        return [axes.get_images()[0].get_array().tolist() for axes in figure.axes]

    once = shown(60, queries=2, seed=1, top=1)
    assert len(once) == 2 * 2
    assert shown(60, queries=2, seed=1, top=1) == once
    assert shown(60, queries=2, seed=2, top=1) != once
    assert len(shown(3)) == 3 * 3


@pytest.mark.parametrize("queries", [0, [], [60], [-1], [0.5]])
def test_rejects_queries_that_are_no_rows(queries, tmp_path, rng):
    x, labels = rows_of_two_classes(rng)
    with pytest.raises(ValueError, match="`queries` must be"):
        plot_retrievals(
            np.zeros((60, 2, 2)),
            x,
            labels,
            tmp_path / "r.png",
            similarity=lambda a, b: a @ b.T,
            queries=queries,
        )


@pytest.mark.parametrize("count", [3, 61])
def test_rejects_images_that_are_not_those_of_the_rows(count, tmp_path, rng):
    message = f"`images` must be a callable or one image per row. Received: images={count}, rows=60"
    with pytest.raises(ValueError, match=f"^{message}$"):
        plot_retrievals(
            np.zeros((count, 2, 2)), *rows_of_two_classes(rng), tmp_path / "r.png", similarity=None
        )


def test_rejects_a_similarity_that_is_no_callable(tmp_path, rng):
    data = (*rows_of_two_classes(rng), tmp_path / "r.png")
    for draw in (plot_score_distributions, lambda *data, **o: plot_retrievals(data[0], *data, **o)):
        with pytest.raises(
            TypeError, match=r"^`similarity` must be a callable or None. Received: similarity='x'$"
        ):
            draw(*data, similarity="x")
