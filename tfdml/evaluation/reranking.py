"""Retrieval in large galleries: the nearest rows by distance, reranked by a learned similarity."""

import numpy as np

from tfdml.checks import check, check_type
from tfdml.evaluation import inputs
from tfdml.evaluation.ranking import ranking_of
from tfdml.evaluation.tiles import slices_of

_PAIRS_AT_ONCE = 8192  # rows passed to the similarity
_CANDIDATES_AT_ONCE = 2**20  # candidates per block of queries: 50 MB of indices and scores


def recall_after_reranking(
    embeddings, labels, k=(1, 2, 4, 8), *, similarity, candidates=100, **gallery
):
    """Recall@K after a learned similarity reranks the nearest rows by distance.

    The candidates of a query are its nearest gallery rows by Euclidean distance, itself excluded by
    index. Ties count as errors: a candidate of another class with the score of the best relevant
    row ranks before it, and a relevant row exactly as far as the nearest excluded row counts as
    excluded. Other arguments and errors are those of `retrieval_scores`.

    Args:
        k: Positive integer or several, at most `candidates`.
        similarity: Callable of rows (i, dim) and (i, dim), i at most 8,192, that returns the (i,)
            scores of the pairs: finite, larger for nearer rows. An example is a `PDDM` layer.
        candidates: Rows ranked per query; at most the gallery size, excluding the query itself.
        **gallery: `gallery_embeddings` and `gallery_labels`.

    Returns:
        {K: recall} with Python floats in [0, 1], K ascending.

    Source:
        Huang, Loy, Tang. Local similarity-aware deep feature embedding. NIPS 2016, section 4.
        Differs: the paper ranks whole galleries, of 5,924 and 8,131 rows.
    """
    search, counts = _checked(embeddings, labels, k, similarity, candidates, **gallery)
    return _recalls(search, similarity, candidates, counts)


def exact_and_reranked_recall(
    embeddings, labels, k=(1, 2, 4, 8), *, similarity, candidates=100, queries=1000, seed=0, **more
):
    """Recall@K of ranking the whole gallery by a learned similarity, and of reranking candidates.

    The loss is the first recall minus the second; it may be negative. Over s queries, a share d of
    which is a hit in only one ranking, its standard error is at most sqrt(d / s). Other arguments
    and errors are those of `recall_after_reranking`.

    Args:
        queries: Largest number of queries, drawn at random by the `seed` if there are more.

    Returns:
        Two dicts {K: recall}: of the exact ranking and of the reranked candidates.
    """
    search, counts = _checked(embeddings, labels, k, similarity, candidates, **more)
    queries, rng = inputs.whole_number(queries, "queries", at_least=1), inputs.generator(seed)
    if queries < len(search.kept):
        drawn = rng.choice(len(search.kept), queries, replace=False)
        search = search.of(np.isin(search.kept, drawn))
    exact = _recalls(search, similarity, len(search.gallery), counts)
    return exact, _recalls(search, similarity, candidates, counts)


def reranked_neighbours(embeddings, k, *, similarity, candidates=100):
    """The K best neighbours of each row after a learned similarity reranks its nearest rows.

    Other arguments and errors are those of `recall_after_reranking`.

    Returns:
        (n, k) int64 row numbers by descending score; equal scores by ascending distance.
    """
    labels = np.arange(len(inputs.finite_rows(embeddings)))
    k = inputs.whole_number(k, "k", at_least=1)
    search, _ = _checked(embeddings, labels, k, similarity, candidates)
    rows = ranking_of(search, nearest=candidates, depth=0).nearest
    scores = _pair_scores(similarity, search.queries, search.gallery, rows)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(rows, order, axis=1)


def _checked(embeddings, labels, k, similarity, candidates, **gallery):
    """The arguments as a `Search` and a list of numbers K."""
    check_type(callable(similarity), "`similarity` must be a callable", similarity=similarity)
    search = inputs.search_of(embeddings, labels, **gallery).in_one_array()
    candidates, most = inputs.whole_number(candidates, "candidates", at_least=1), search.most
    expectation = "`candidates` must not exceed the gallery size, excluding the query itself"
    check(candidates <= most, expectation, candidates=candidates, gallery_size=most)
    counts = inputs.neighbour_counts(k, most)
    check(counts[-1] <= candidates, "`k` must not exceed `candidates`", k=k, candidates=candidates)
    return search, counts


def _recalls(search, similarity, candidates, counts):
    """{K: recall} of the candidates; warns of queries without relevant rows."""
    blocks = slices_of(0, len(search.kept), max(1, _CANDIDATES_AT_ONCE // candidates))
    ranks = np.concatenate([_ranks(search.of(some), similarity, candidates) for some in blocks])
    inputs.warn_of_misses(search.relevant)
    return {count: float(np.mean(ranks <= count)) for count in counts}


def _ranks(search, similarity, candidates):
    """(n,) ranks of the first relevant candidates, infinity for none."""
    order = np.argsort(search.kept)
    rows, nearer = np.tile(np.arange(candidates), (len(order), 1)), True
    if candidates < len(search.gallery):
        _, _, rows, distances, _ = ranking_of(search, nearest=candidates + 1, depth=0)
        rows, nearer = rows[:, :-1], distances[:, :-1] < distances[:, -1:]
    queries, keys = search.queries[search.kept[order]], search.gallery_keys[rows]
    scores = _pair_scores(similarity, queries, search.gallery, rows)
    same = keys // search.width == search.classes[order, None]
    found = same & (keys != search.keys[order, None]) & nearer
    best = np.where(found, scores, -np.inf).max(axis=1)
    other = np.where(same, -np.inf, scores)
    ranks = 1.0 + np.count_nonzero(other >= best[:, None], axis=1)
    return np.where(found.any(axis=1), ranks, np.inf)


def _pair_scores(similarity, embeddings, gallery_embeddings, rows):
    """(n, c) scores of each embedding with its (n, c) gallery rows."""
    scores = np.empty(rows.size)
    for some in slices_of(0, rows.size, _PAIRS_AT_ONCE):
        pairs = np.arange(some.start, some.stop)
        a = embeddings[pairs // rows.shape[1]]
        b = gallery_embeddings[rows.flat[pairs]]
        scores[pairs] = inputs.scores_of(similarity, a, b, (len(pairs),))
    return scores.reshape(rows.shape)
