"""Against scikit-learn's PCA, the formula of alpha query expansion, and the code of Zhong et al."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from tfdml.evaluation import (
    expand_queries,
    fit_pca,
    k_reciprocal_distances,
    postprocessing,
    project,
    rank,
    rank_by,
)


def classes(rng, count=60, dim=8):
    """Rows around centres, and their labels."""
    labels = rng.permutation(np.repeat(np.arange(count // 6), 6))
    return rng.normal(size=(count // 6, dim))[labels] + rng.normal(0, 0.7, (count, dim)), labels


@pytest.mark.parametrize("whiten", [False, True])
def test_equals_pca_of_scikit_learn(whiten, rng):
    rows, others = rng.normal(size=(2, 50, 8)) @ rng.normal(size=(8, 8)) + 3
    found = project(others, *fit_pca(rows, 5, whiten=whiten))
    expected = PCA(5, whiten=whiten, svd_solver="full").fit(rows).transform(others)
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found, signs * expected, atol=1e-8)


def test_rows_of_unit_length_have_it_again(rng):
    rows = rng.normal(size=(20, 6)).astype("float32")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    found = project(rows, *fit_pca(rows, 3, whiten=True))
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("in_gallery", [False, True])
def test_expansion_adds_the_nearest_rows_by_powers_of_their_cosines(in_gallery, rng):
    rows, gallery = rng.normal(size=(12, 5)), rng.normal(size=(9, 5))
    unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (rows, gallery)]
    searched = unit[in_gallery]
    for q, found in enumerate(
        expand_queries(rows, 4, alpha=3, gallery_embeddings=gallery if in_gallery else None)
    ):
        cosines = searched @ unit[0][q]
        others = [i for i in np.argsort(-cosines) if in_gallery or i != q][:4]
        expected = unit[0][q] + sum(max(cosines[i], 0) ** 3 * searched[i] for i in others)
        np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-9)


def re_ranking(rows, first, k1, k2, weight):
    """The code of the paper: dense matrices and a loop over rows."""
    count = len(rows)
    original = ((rows[:, None] - rows[None]) ** 2).sum(axis=-1)
    original = np.transpose(original / original.max(axis=0))
    codes, ranks = np.zeros_like(original), np.argsort(original)

    def mutual(i, k):
        forward = ranks[i, : k + 1]
        return forward[np.where(ranks[forward, : k + 1] == i)[0]]

    for i in range(count):
        near = expanded = mutual(i, k1)
        for candidate in near:
            half = mutual(candidate, int(np.around(k1 / 2)))
            if len(np.intersect1d(half, near)) > 2 / 3 * len(half):
                expanded = np.append(expanded, half)
        expanded = np.unique(expanded)
        weights = np.exp(-original[i, expanded])
        codes[i, expanded] = weights / weights.sum()
    codes = np.array([codes[ranks[i, :k2]].mean(axis=0) for i in range(count)])
    shared = np.minimum(codes[:first, None], codes[None]).sum(axis=-1)
    final = (1 - shared / (2 - shared)) * (1 - weight) + original[:first] * weight
    return final[:, first:] if first < count else final


@pytest.mark.parametrize(
    ("gallery", "k1", "k2", "weight"),
    [(False, 7, 3, 0.3), (True, 7, 3, 0.3), (False, 5, 1, 0.0), (True, 10, 4, 0.9)],
)
def test_equals_the_code_of_k_reciprocal_encoding(gallery, k1, k2, weight, rng, monkeypatch):
    monkeypatch.setattr(postprocessing, "_ROWS", 7)
    rows, _ = classes(rng)
    first = 20 if gallery else len(rows)
    given = (rows[:first], rows[first:]) if gallery else (rows,)
    distances = k_reciprocal_distances(*given, k1=k1, k2=k2, original_weight=weight)
    expected = re_ranking(rows, first, k1, k2, weight)
    np.testing.assert_allclose(distances(np.arange(first)), expected, atol=1e-9)
    np.testing.assert_allclose(distances([3, 1]), expected[[3, 1]], atol=1e-9)


@pytest.mark.parametrize("gallery", [False, True])
def test_ranks_by_distances_as_by_the_euclidean(gallery, rng):
    rows, labels = classes(rng)
    rows, labels, others = rows[:30], labels[:30], (rows[30:], labels[30:])
    searched, found_labels = others if gallery else (rows, labels)
    squared = ((rows[:, None] - searched[None]) ** 2).sum(axis=-1)
    given = (labels, found_labels) if gallery else (labels,)
    found = rank_by(lambda queries: squared[queries], *given, nearest=5)
    expected = rank(rows, labels, *(others if gallery else ()), nearest=5)
    np.testing.assert_array_equal(found.nearest, expected.nearest)
    for one, other in zip(found.relevant_ranks, expected.relevant_ranks, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (fit_pca, {"dims": 9}, "`dims` must be <= dim and < n"),
        (fit_pca, {"dims": 8, "whiten": True}, "components to whiten must vary: give fewer"),
        (expand_queries, {"neighbours": 10}, "must not exceed the rows to find. .*rows_to_find=9"),
        (expand_queries, {"alpha": -1}, "`alpha` must be"),
        (k_reciprocal_distances, {"k1": 10}, "`k1` must be an integer >= 1 and < 10"),
        (k_reciprocal_distances, {"k1": 3, "k2": 4}, "`k2` must be an integer >= 1 and < 4"),
        (k_reciprocal_distances, {"k1": 3, "k2": 1, "original_weight": 2}, "original_weight"),
    ],
)
def test_rejects(function, options, message, rng):
    rows = np.repeat(rng.normal(size=(10, 4)), 2, axis=1)
    with pytest.raises(ValueError, match=message):
        function(rows, **options)
