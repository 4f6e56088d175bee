"""Retrieval in large galleries: the nearest rows by distance, reranked by a learned similarity."""

import numpy as np

from tfdml.checks import check, check_type
from tfdml.evaluation import inputs
from tfdml.evaluation.exact.neighbours import nearest_neighbours, nearest_rows
from tfdml.evaluation.exact.points import Frame
from tfdml.evaluation.exact.search import search_of

_PAIRS_AT_ONCE = 8192  # rows passed to the similarity
_CANDIDATES_AT_ONCE = 2**20  # candidates per block of queries: 50 MB of indices and scores


def recall_after_reranking(
    embeddings,
    labels,
    k=(1, 2, 4, 8),
    *,
    similarity,
    candidates=100,
    gallery_embeddings=None,
    gallery_labels=None,
):
    """Recall@K after a learned similarity reranks the nearest rows by distance.

    The candidates of a query are its nearest gallery rows by Euclidean distance, itself excluded by
    index. A learned similarity ranks them, with `candidates` scores per query instead of one per
    gallery row. Recall@K is that of `recall_at_k` on this ranking; a row of the query's class that
    is not a candidate is not found. Ties count as errors: a candidate of another class with the
    score of the best relevant row ranks before it, and a relevant row exactly as far as the nearest
    excluded row counts as excluded. `exact_and_reranked_recall` measures the loss in recall.

    Args:
        embeddings: (n, dim) floats, finite; the queries, taken as given: not normalised.
        labels: (n,) or (n, 1) integers of any size, one class id per query.
        k: Positive integer or several, at most `candidates`.
        similarity: Callable of rows (i, dim) and (i, dim), i at most 8,192, that returns the (i,)
            scores of the pairs: finite, larger for nearer rows. An example is a `PDDM` layer.
        candidates: Rows ranked per query; at most the gallery size, excluding the query itself.
        gallery_embeddings: (m, dim) floats searched in; by default the queries.
        gallery_labels: (m,) or (m, 1) integers; given exactly when `gallery_embeddings` are.

    Returns:
        {K: recall} with Python floats in [0, 1], K ascending. A query without another row of its
        class is a miss for every K; a warning gives their number. Another warning is raised if the
        best scores of all queries are equal, as with a layer of dead units.

    Raises:
        TypeError: If labels are not integers, embeddings not floats or `similarity` not callable.
        ValueError: If shapes disagree, an input is empty or not finite, embeddings or labels of the
            gallery are missing, `k` or `candidates` are out of range, or the scores of `similarity`
            have a wrong shape or are not finite.

    Source:
        Huang, Loy, Tang. Local similarity-aware deep feature embedding. NIPS 2016, section 4.
        Differs: the paper ranks whole galleries, of 5,924 and 8,131 rows.

    Example:
        >>> line, labels = np.array([[0.0], [1.0], [3.0], [3.5]]), np.array([0, 1, 0, 1])
        >>> farthest = {"similarity": lambda a, b: abs(a - b)[:, 0], "k": 1}
        >>> recall_after_reranking(line, labels, candidates=2, **farthest)
        {1: 0.5}
    """
    gallery = {"gallery_embeddings": gallery_embeddings, "gallery_labels": gallery_labels}
    search, counts = _search_and_counts(embeddings, labels, k, similarity, candidates, gallery)
    return _recalls(search, similarity, candidates, counts)


def exact_and_reranked_recall(
    embeddings,
    labels,
    k=(1, 2, 4, 8),
    *,
    similarity,
    candidates=100,
    gallery_embeddings=None,
    gallery_labels=None,
    queries=1000,
    seed=0,
):
    """Recall@K of ranking the whole gallery by a learned similarity, and of reranking candidates.

    Both recalls are of the same queries, a random sample if there are more than `queries`, as the
    exact ranking computes one score per query and gallery row. The loss is the first recall minus
    the second. It may be negative, as a wrong row of high score may be too far away to be a
    candidate. Over s sampled queries, a share d of which is a hit in only one ranking, its standard
    error is at most sqrt(d / s): 0.003 for d = 0.01 and s = 1,000.

    Args:
        embeddings: As for `recall_after_reranking`.
        labels: As for `recall_after_reranking`.
        k: As for `recall_after_reranking`.
        similarity: As for `recall_after_reranking`.
        candidates: As for `recall_after_reranking`.
        gallery_embeddings: As for `recall_after_reranking`; by default all rows, sampled or not.
        gallery_labels: As for `recall_after_reranking`.
        queries: Largest number of queries; >= 1.
        seed: Integer >= 0, seed of the sample.

    Returns:
        Two dicts {K: recall}: of the exact ranking and of the reranked candidates.

    Raises:
        TypeError: As `recall_after_reranking`.
        ValueError: As `recall_after_reranking`, or if `queries` or `seed` are out of range.

    Example:
        >>> line, labels = np.array([[0.0], [1.0], [3.0], [3.5]]), np.array([0, 1, 1, 0])
        >>> farthest = {"similarity": lambda a, b: abs(a - b)[:, 0], "k": 1}
        >>> exact_and_reranked_recall(line, labels, candidates=1, **farthest)
        ({1: 0.5}, {1: 0.0})
    """
    gallery = {"gallery_embeddings": gallery_embeddings, "gallery_labels": gallery_labels}
    search, counts = _search_and_counts(embeddings, labels, k, similarity, candidates, gallery)
    queries = inputs.whole_number(queries, "queries", at_least=1)
    rng = np.random.default_rng(inputs.whole_number(seed, "seed", at_least=0))
    if queries < len(search.order):
        drawn = rng.choice(len(search.order), queries, replace=False)
        search = search.of(np.isin(search.order, drawn))
    exact = _recalls(search, similarity, search.most, counts)
    return exact, _recalls(search, similarity, candidates, counts)


def reranked_neighbours(embeddings, k, *, similarity, candidates=100):
    """The K best neighbours of each row after a learned similarity reranks its nearest rows.

    Args:
        embeddings: (n, dim) floats, finite; taken as given: not normalised.
        k: Neighbours of each row, at most `candidates`.
        similarity: As for `recall_after_reranking`.
        candidates: Rows reranked, the nearest by distance, from 1 to n - 1.

    Returns:
        (n, k) int64 row numbers by descending score; equal scores by ascending distance.

    Raises:
        TypeError: If `embeddings` are not floats or `similarity` not callable.
        ValueError: If they have another shape, are empty or not finite, `k` or `candidates` are out
            of range, or the scores of `similarity` have a wrong shape or are not finite.

    Example:
        >>> line = np.array([[0.0], [1.0], [3.0], [5.0]])
        >>> farthest = lambda a, b: abs(a - b)[:, 0]
        >>> reranked_neighbours(line, 1, similarity=farthest, candidates=2).tolist()
        [[2], [2], [1], [1]]
    """
    check_type(callable(similarity), "`similarity` must be a callable", similarity=similarity)
    candidates = inputs.whole_number(candidates, "candidates", at_least=1)
    k = inputs.whole_number(k, "k", at_least=1)
    check(k <= candidates, "`k` must not exceed `candidates`", k=k, candidates=candidates)
    embeddings = inputs.finite_rows(embeddings)
    others = len(embeddings) - 1
    expectation = "`candidates` must not exceed the number of other rows"
    check(candidates <= others, expectation, candidates=candidates, other_rows=others)
    rows = nearest_neighbours(embeddings, candidates)
    scores = _scores_of_pairs(similarity, embeddings, embeddings, rows)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(rows, order, axis=1)


def _scores_of_pairs(similarity, embeddings, gallery_embeddings, rows):
    """(n, c) scores of each embedding with its (n, c) gallery rows."""
    scores = np.empty(rows.size)
    for first in range(0, rows.size, _PAIRS_AT_ONCE):
        pairs = np.arange(first, min(first + _PAIRS_AT_ONCE, rows.size))
        a = embeddings[pairs // rows.shape[1]]
        b = gallery_embeddings[rows.flat[pairs]]
        scores[pairs] = inputs.scores_of(similarity, a, b, (len(pairs),))
    return scores.reshape(rows.shape)


def _search_and_counts(embeddings, labels, k, similarity, candidates, gallery):
    """The arguments, checked, as a `Search` and a list of numbers K."""
    check_type(callable(similarity), "`similarity` must be a callable", similarity=similarity)
    search = search_of(embeddings, labels, **gallery)
    candidates, most = inputs.whole_number(candidates, "candidates", at_least=1), search.most
    expectation = "`candidates` must not exceed the gallery size, excluding the query itself"
    check(candidates <= most, expectation, candidates=candidates, gallery_size=most)
    counts = inputs.neighbour_counts(k, search.most)
    check(counts[-1] <= candidates, "`k` must not exceed `candidates`", k=k, candidates=candidates)
    return search, counts


def _recalls(search, similarity, candidates, counts):
    """{K: recall} of the candidates; warns of queries without relevant rows and of equal scores."""
    frame = Frame.around(search.gallery, search.queries)
    gallery = frame.points(search.gallery)
    step, found = max(1, _CANDIDATES_AT_ONCE // candidates), []
    for first in range(0, len(search.queries), step):
        block = search.of(slice(first, first + step))
        own = block.left_out if search.among_themselves else None
        if candidates < search.most:
            queries = frame.points(block.queries)
            rows, distances = nearest_rows(queries, gallery, candidates + 1, own)
            rows, certain = rows[:, :-1], distances[:, :-1] < distances[:, -1:]
        else:
            rows, certain = np.tile(np.arange(candidates), (len(block.queries), 1)), True
            rows += 0 if own is None else rows >= own[:, None]
        scores = _scores_of_pairs(similarity, block.queries, search.gallery, rows)
        found.append(_ranks(block, rows, scores, certain))
    ranks, best, other = (np.concatenate(part) for part in zip(*found, strict=True))
    inputs.warn_if_equal(np.concatenate([best, other]))
    inputs.warn_of_misses(search.relevant)
    return {count: float(np.mean(ranks < count)) for count in counts}


def _ranks(search, rows, scores, certain):
    """Numbers of candidates of other classes that score at least as high as the best relevant one.

    Args:
        search: `Search`.
        rows: (n, candidates) gallery rows.
        scores: (n, candidates) floats.
        certain: Which of them are candidates however ties are broken.

    Returns:
        (n,) floats: the count, `candidates` if no relevant row is among them, infinity if there is
        none; the best scores of relevant rows and those of others.
    """
    relevant = (rows >= search.start[:, None]) & (rows < search.stop[:, None])
    best = np.where(relevant & certain, scores, -np.inf).max(axis=1)
    other = np.where(relevant, -np.inf, scores)
    before = np.count_nonzero(other >= best[:, None], axis=1)
    before = np.where(best == -np.inf, rows.shape[1], before)
    return np.where(search.relevant > 0, before, np.inf), best, other.max(axis=1)
