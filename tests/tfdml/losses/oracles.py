"""Each loss of the table once more, as loops over examples in float64: the reference of its tests.

A function takes labels, embeddings and the options of its loss and follows the paper's formula
without a thought for speed.
"""

import functools
import math
from collections import Counter

import numpy as np


def unit(rows):
    return np.array([row / np.linalg.norm(row) if np.linalg.norm(row) > 0 else row for row in rows])


def distance(a, b, squared):
    value = float(np.sum((a - b) ** 2))
    return value if squared else math.sqrt(value)


def pairs_of(labels):
    n = len(labels)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    positive = [(i, j) for i, j in pairs if labels[i] == labels[j]]
    return positive, [(i, j) for i, j in pairs if labels[i] != labels[j]]


def average(losses, rows, over):
    if over == "sum":
        return sum(losses)
    if over == "batch":
        return sum(losses) / rows
    if over == "active":
        losses = [loss for loss in losses if loss > 0]
    return sum(losses) / max(len(losses), 1)


def contrastive(
    labels,
    x,
    margin=1.0,
    squared=True,
    pairs="all",
    squared_hinge=False,
    average_over="active",
    normalize=True,
):
    x = unit(x) if normalize else x
    positive, negative = pairs_of(labels)
    if pairs == "halves":
        listed = {(i, i + len(labels) // 2) for i in range(len(labels) // 2)}
        positive, negative = ([p for p in some if p in listed] for some in (positive, negative))
    losses = [distance(x[i], x[j], squared) for i, j in positive]
    for i, j in negative:
        if squared_hinge:
            losses.append(max(0.0, margin - distance(x[i], x[j], False)) ** 2)
        else:
            losses.append(max(0.0, margin - distance(x[i], x[j], squared)))
    return average(losses, len(labels), average_over)


def clustering_score(distances, labels, medoids, gamma):
    """Of the clusters around medoids: gamma * (1 - NMI) less the sum of distances to them."""
    n = len(labels)
    clusters = [
        i if i in medoids else min(medoids, key=lambda m: distances[i][m]) for i in range(n)
    ]

    def entropy(names):
        return -sum(count / n * math.log(count / n) for count in Counter(names).values())

    entropies = entropy(clusters) + entropy(labels)
    shared = entropies - entropy(list(zip(clusters, labels, strict=True)))
    nmi = 2 * shared / entropies if entropies > 1e-12 else 1.0
    return gamma * (1 - nmi) - sum(distances[i][m] for i, m in enumerate(clusters))


def clustering_parts(labels, x, squared, normalize):
    """The labels, the distances, the medoid of each class and the sum of distances to them."""
    x, labels = unit(x) if normalize else x, [int(label) for label in labels]
    distances = [[distance(a, b, squared) for b in x] for a in x]
    sums = np.sum(distances, axis=0)
    medoids, cost = [], 0.0
    for label in sorted(set(labels)):
        rows = [i for i, other in enumerate(labels) if other == label]
        costs = {j: sum(distances[i][j] for i in rows) for j in rows}
        best = [j for j in rows if costs[j] <= min(costs.values()) * (1 + 1e-13)]
        medoids.append(min(best, key=lambda j: (sums[j], j)))
        cost += min(costs.values())
    return labels, distances, medoids, cost


def clustering(labels, x, gamma=10.0, squared=False, swaps=5, normalize=True):
    labels, distances, of_classes, cost = clustering_parts(labels, x, squared, normalize)
    sums, rows = np.sum(distances, axis=0), range(len(labels))

    def score(medoids):
        return clustering_score(distances, labels, medoids, gamma)

    def best_of(candidates):
        scores = [score(medoids) for medoids in candidates]
        most = max(scores)
        tied = [m for m, s in zip(candidates, scores, strict=True) if s >= most - 1e-13 * abs(most)]
        return min(tied, key=lambda medoids: sum(sums[j] for j in medoids))

    added = []
    for _ in of_classes:
        added = best_of([[*added, j] for j in rows if j not in added])
    outer = sorted(rows, key=lambda j: -sums[j])[: len(of_classes)]
    scores = []
    for medoids in (of_classes, added, outer):
        for _ in range(swaps):
            others = [j for j in rows if j not in medoids]
            swapped = [[*(m for m in medoids if m != old), j] for old in medoids for j in others]
            if not swapped or score(best_of(swapped)) <= score(medoids) + 1e-13:
                break
            medoids = best_of(swapped)
        scores.append(score(medoids))
    return max(0.0, max(scores) + cost)


def hdc(
    labels,
    x,
    levels=3,
    hard_ratios=(1.0, 0.5, 0.2),
    margin=1.0,
    squared=True,
    selection="own_all",
    average_over="active",
    level_weights=None,
    negative_factor=1.0,
    mine_positives=False,
    normalize=True,
):
    positive, negative = pairs_of(labels)
    if average_over == "ordered":
        negative = [pair for i, j in negative for pair in ((i, j), (j, i))]
    parts = np.split(np.asarray(x), levels, axis=1)
    parts = [unit(part) for part in parts] if normalize else parts

    def loss_of(level, i, j):
        d = distance(parts[level][i], parts[level][j], squared)
        return d if labels[i] == labels[j] else negative_factor * max(0.0, margin - d)

    total, kept = 0.0, [positive, negative]
    for level, ratio in enumerate(hard_ratios):
        ranked_at = max(level - 1, 0) if selection == "previous" else level
        for kind, pairs in enumerate((positive, negative)):
            candidates = pairs if selection == "own_all" else kept[kind]
            if kind or mine_positives:
                hardest = sorted(candidates, key=lambda pair: (-loss_of(ranked_at, *pair), pair))
                kept[kind] = hardest[: int(ratio * len(pairs) + 1e-9)]
        values = [loss_of(level, i, j) for pairs in kept for i, j in pairs]
        over = "active" if average_over == "ordered" else average_over
        weight = 1.0 if level_weights is None else level_weights[level]
        total += weight * average(values, len(labels), over)
    return total


hard_contrastive = functools.partial(hdc, levels=1, hard_ratios=(0.5,))


def triplet(
    labels, x, margin=1.0, mining="all", squared=True, average_over="triplets", normalize=True
):
    x = unit(x) if normalize else x
    n = len(labels)
    losses = []
    for a in range(n):
        positives = [
            distance(x[a], x[p], squared) for p in range(n) if p != a and labels[p] == labels[a]
        ]
        negatives = [distance(x[a], x[k], squared) for k in range(n) if labels[k] != labels[a]]
        if not positives or not negatives:
            continue
        if mining == "all":
            mined = [(p, k) for p in positives for k in negatives]
        elif mining == "hard":
            mined = [(max(positives), min(negatives))]
        else:
            mined = [
                (p, min((k for k in negatives if k > p), default=max(negatives))) for p in positives
            ]
        losses += [max(0.0, p - k + margin) for p, k in mined]
    return average(losses, n, average_over)


def lifted(labels, x, margin=None, variant="smooth", normalize=False):
    margin = margin or (1.0 if normalize else 30.0)
    x = unit(x) if normalize else x
    positive, negative = pairs_of(labels)
    near = {i: [] for i in range(len(labels))}
    for i, j in negative:
        near[i].append(margin - distance(x[i], x[j], False))
        near[j].append(margin - distance(x[i], x[j], False))
    total = 0.0
    for i, j in positive:
        if not near[i]:
            continue
        if variant == "smooth":
            push = math.log(sum(math.exp(value) for value in near[i] + near[j]))
        elif variant == "max":
            push = max(near[i] + near[j])
        else:
            push = max(near[i]) + max(near[j])
        total += max(0.0, push + distance(x[i], x[j], False)) ** 2
    return total / (2 * max(len(positive), 1))


def npair(labels, x, pairs="all", scale=16.0, l2=0.0, normalize=True):
    x = unit(x) if normalize else x
    members = {}
    for i, label in enumerate(labels):
        members.setdefault(int(label), []).append(i)
    tuples = []
    if pairs == "all":
        for i, label in enumerate(labels):
            others = [k for k, other in enumerate(labels) if other != label]
            tuples += [(i, j, others) for j in members[int(label)] if j != i]
    else:
        longest = max(len(rows) for rows in members.values())
        for start in [0] if pairs == "first" else range(0, longest, 2):
            group = {c: rows[start : start + 2] for c, rows in members.items()}
            group = {c: rows for c, rows in group.items() if len(rows) == 2}
            for c, (anchor, positive) in group.items():
                tuples.append((anchor, positive, [r[1] for o, r in group.items() if o != c]))
    losses, lengths = [], []
    for i, j, others in tuples:
        losses.append(
            math.log1p(sum(math.exp(scale * (x[i] @ x[k] - x[i] @ x[j])) for k in others))
        )
        lengths.append(x[i] @ x[i] + x[j] @ x[j])
    if not tuples:
        return 0.0
    return float(np.mean(losses) + l2 / 2 * np.mean(lengths))


def binomial(labels, x, alpha=2.0, beta=0.5, negative_cost=5.0, normalize=True):
    x = unit(x) if normalize else x
    total = 0.0
    for pairs, steepness in zip(pairs_of(labels), (-alpha, alpha * negative_cost), strict=True):
        losses = [float(np.logaddexp(0, steepness * (x[i] @ x[j] - beta))) for i, j in pairs]
        total += sum(losses) / max(len(losses), 1)
    return total


def histogram(labels, x, num_bins=201, normalize=True):
    x = unit(x) if normalize else x
    histograms = []
    for pairs in pairs_of(labels):
        counts = [0.0] * num_bins
        for i, j in pairs:
            similarity = min(max(x[i] @ x[j], -1.0), 1.0)
            place = (similarity + 1) / 2 * (num_bins - 1)
            node = min(int(place), num_bins - 2)
            counts[node] += 1 - (place - node)
            counts[node + 1] += place - node
        histograms.append([count / max(len(pairs), 1) for count in counts])
    positive, negative = histograms
    return sum(negative[r] * sum(positive[: r + 1]) for r in range(num_bins))


def members_of(labels):
    members = {}
    for i, label in enumerate(labels):
        members.setdefault(int(label), []).append(i)
    return members


def coupled_clusters(labels, x, margin=None, normalize=False):
    margin = margin or (1.0 if normalize else 100.0)
    x = unit(x) if normalize else x
    losses = []
    for rows in members_of(labels).values():
        others = [i for i in range(len(labels)) if i not in rows]
        if len(rows) > 1 and others:
            center = np.mean([x[i] for i in rows], axis=0)
            nearest = min(distance(x[i], center, True) for i in others)
            hinges = [max(0.0, distance(x[i], center, True) + margin - nearest) for i in rows]
            losses.append(sum(hinges) / 2)
    return sum(losses) / max(len(losses), 1)


def gor(labels, x, normalize=True):
    x = unit(x) if normalize else x
    _, negative = pairs_of(labels)
    products = [x[i] @ x[j] for i, j in negative] or [0.0]
    mean_square = np.mean(np.square(products))
    return float(np.mean(products) ** 2 + max(0.0, mean_square - 1 / x.shape[1]))


def entropy(labels, x, of="pairs", threshold=1.0, bandwidth=0.5, normalize=True):
    x = unit(x) if normalize else x
    if of == "parzen":
        kernels = [math.exp(-distance(a, b, True) / (4 * bandwidth**2)) for a in x for b in x]
        return math.log(np.mean(kernels))
    entropies = []
    for pairs in pairs_of(labels):
        for i, j in pairs:
            p = 1 / (1 + math.exp(distance(x[i], x[j], True) - threshold))
            entropies.append(-p * math.log(p) - (1 - p) * math.log(1 - p))
    return -float(np.mean(entropies))


def density_of_classes(
    labels,
    x,
    num_classes=None,
    initial_density=None,
    eta=0.5,
    correlation=True,
    alpha_init=0.5,
    alpha_multiplier=1.0,
    normalize=True,
):
    x = unit(x) if normalize else x
    groups = {c: [x[i] for i in rows] for c, rows in members_of(labels).items() if len(rows) > 1}
    count = max(len(groups), 1)
    loss = 0.0
    for rows in groups.values():
        center = np.mean(rows, axis=0)
        spread = np.mean([distance(row, center, True) for row in rows])
        loss += ((spread - alpha_init) ** 2 - alpha_init) / count
    if correlation:
        for c in groups:
            for k in groups:
                gap = initial_density[k] ** eta - initial_density[c] ** eta
                loss += (gap * alpha_init) ** 2 / count**2
    return float(loss)


def part_of(settings, labels, x, functions):
    options = {"name": settings} if isinstance(settings, str) else dict(settings)
    name = options.pop("name")
    return functions[name](labels, x, **options)


def regularized(labels, x, base, regularizer, weight=1.0):
    value = part_of(base, labels, x, globals())
    if base == "hdc":
        x = np.concatenate([unit(part) for part in np.split(x, 3, axis=1)], axis=1)
    return value + weight * part_of(regularizer, labels, x, REGULARIZERS)


def density(labels, x, base="npair", weight=3.0, **options):
    return regularized(labels, x, base, {"name": "density", **options}, weight)


REGULARIZERS = {"density": density_of_classes, "entropy": entropy, "gor": gor}


@functools.cache
def similarity_of(dim, **options):
    """The score of two rows by a `PDDM` layer of these options, with its first weights."""
    from tfdml.layers import PDDM

    layer = PDDM(**options)
    layer.build((None, dim))
    weights = {v.path.split("/")[-1]: np.asarray(v, "float64") for v in layer.weights}

    def affine(name, x):
        return x @ weights[f"{name}_kernel"] + weights[f"{name}_bias"]

    def direction(x):
        x = np.maximum(x, 0.0)
        return x / math.sqrt(x @ x + 1e-12)

    def score(a, b):
        joined = [direction(affine("difference", np.abs(a - b)))]
        if layer.use_position:
            joined.append(direction(affine("position", (a + b) / 2)))
        combination = np.maximum(affine("combination", np.concatenate(joined)), 0.0)
        return float(affine("score", combination)[0])

    return score


def symmetric(score, rows):
    scores = np.zeros((len(rows), len(rows)))
    for i in range(len(rows)):
        for j in range(i + 1, len(rows)):
            scores[i, j] = scores[j, i] = score(rows[i], rows[j])
    return scores


def double_header(
    labels,
    x,
    similarity=None,
    alpha=0.1,
    beta=0.2,
    embedding_weight=0.5,
    headers=2,
    num_quadruplets="per_positive_pair",
    score_scale=None,
    temperature=0.1,
    embedding_mining="distance",
    mine_with_dropout=True,
    squared=False,
    normalize=True,
    held_at=None,
):
    """`held_at` are the rows that give what has no gradient: the ranges and the weights."""
    held_at = x if held_at is None else held_at
    x, held_at = (unit(rows) if normalize else rows for rows in (x, held_at))
    n = len(labels)
    if similarity is None:
        scores = [[-distance(a, b, True) for b in x] for a in x]
        held = scores
    else:
        score = similarity_of(x.shape[1], **similarity)
        scores = symmetric(score, x)
        held = scores
        if score_scale in ("minmax", "local"):
            held = symmetric(score, held_at)
    positive, negative = pairs_of(labels)
    negatives = {i: [k for k in range(n) if labels[k] != labels[i]] for i in range(n)}
    pairs = sorted(
        (pair for pair in positive if negatives[pair[0]]), key=lambda pair: scores[pair[0]][pair[1]]
    )
    if num_quadruplets == 1:
        pairs = pairs[:1]
    elif num_quadruplets == "per_class":
        pairs = [
            next(pair for pair in pairs if labels[pair[0]] == label)
            for label in {int(labels[i]) for i, _ in pairs}
        ]

    def near_negatives(row, others):
        distances = [distance(x[row], x[other], squared) for other in others]
        if temperature is None:
            return min(distances)
        held_distances = [distance(held_at[row], held_at[other], True) for other in others]
        weights = [math.exp(-gap / temperature) for gap in held_distances]
        return np.average(distances, weights=weights)

    every = [held[i][j] for i, j in positive + negative]
    losses = []
    for i, j in pairs:
        k = max(negatives[i], key=lambda row: scores[i][row])
        l = max(negatives[j], key=lambda row: scores[j][row])  # noqa: E741
        here = [held[i][j]]
        here += [held[i][row] for row in negatives[i]] + [held[j][row] for row in negatives[j]]
        scale = {
            None: lambda s: s,
            "sigmoid": lambda s: 1 / (1 + math.exp(-s)),
            "minmax": lambda s: (s - min(every)) / (max(every) - min(every)),
            "local": lambda s: (s - min(here)) / (max(here) - min(here)),  # noqa: B023
        }[score_scale]
        near, highest = scale(scores[i][j]), (scores[i][k], scores[j][l])
        if temperature is not None:
            highest = [
                temperature * math.log(sum(math.exp(scores[a][b] / temperature) for b in rows))
                for a, rows in ((i, negatives[i]), (j, negatives[j]))
            ]
        gaps = [alpha + scale(score) - near for score in highest]
        metric = [max(0.0, gap) for gap in gaps]
        if temperature is not None:
            metric = [temperature * math.log1p(math.exp(gap / temperature)) for gap in gaps]
        if similarity is not None and embedding_mining == "similarity":
            away = [distance(x[i], x[k], squared), distance(x[j], x[l], squared)]
        else:
            away = [near_negatives(row, negatives[row]) for row in (i, j)]
        embedding = [max(0.0, beta + distance(x[i], x[j], squared) - gap) for gap in away]
        if similarity is None:
            losses.append(sum(embedding[:headers]))
        else:
            losses.append(sum(metric) + embedding_weight * sum(embedding[:headers]))
    return float(np.mean(losses)) if losses else 0.0


def pddm(labels, x, similarity, **options):
    return double_header(labels, x, similarity, **options)


def lmdm(labels, x, similarity, **options):
    return double_header(labels, x, {"use_position": False, **similarity}, **options)


def pddm_triplet(labels, x, similarity, **options):
    return double_header(labels, x, similarity, headers=1, **options)


def quadruplet(labels, x, **options):
    return double_header(labels, x, None, **options)


def cosines_and_pairs(labels, x, normalize):
    """Products of all rows, and the positives and the negatives of each."""
    x, rows = unit(x) if normalize else x, range(len(labels))
    positives = [[j for j in rows if j != i and labels[j] == labels[i]] for i in rows]
    negatives = [[j for j in rows if labels[j] != labels[i]] for i in rows]
    return x @ x.T, positives, negatives


def multi_similarity(labels, x, alpha=2.0, beta=50.0, threshold=0.5, epsilon=0.1, normalize=True):
    s, positives, negatives = cosines_and_pairs(labels, x, normalize)
    total = 0.0
    for i, (pulled, pushed) in enumerate(zip(positives, negatives, strict=True)):
        if epsilon is not None:
            least = min((s[i, p] for p in pulled), default=math.inf)
            most = max((s[i, n] for n in pushed), default=-math.inf)
            pulled = [p for p in pulled if s[i, p] - epsilon < most]
            pushed = [n for n in pushed if s[i, n] + epsilon > least]
        total += math.log1p(sum(math.exp(-alpha * (s[i, p] - threshold)) for p in pulled)) / alpha
        total += math.log1p(sum(math.exp(beta * (s[i, n] - threshold)) for n in pushed)) / beta
    return total / len(labels)


def softmax_of_pairs(labels, x, temperature, margin, normalize, repel):
    """For each row the cross-entropies of its positives."""
    s, positives, negatives = cosines_and_pairs(labels, x, normalize)
    z = s / temperature
    return [
        [
            math.log(
                sum(math.exp(z[i, j] - margin) for j in (pulled if repel else [p]))
                + sum(math.exp(z[i, n]) for n in pushed)
            )
            - z[i, p]
            + margin
            for p in pulled
        ]
        for i, (pulled, pushed) in enumerate(zip(positives, negatives, strict=True))
    ]


def supcon(labels, x, temperature=0.1, margin=0.0, normalize=True):
    of_rows = softmax_of_pairs(labels, x, temperature, margin, normalize, repel=True)
    return float(np.mean([np.mean(of_row) for of_row in of_rows if of_row]))


def sincere(labels, x, temperature=0.07, margin=0.0, normalize=True):
    of_rows = softmax_of_pairs(labels, x, temperature, margin, normalize, repel=False)
    return float(np.mean([np.mean(of_row) for of_row in of_rows if of_row]))


def ntxent(labels, x, temperature=0.07, margin=0.0, normalize=True):
    of_rows = softmax_of_pairs(labels, x, temperature, margin, normalize, repel=False)
    return float(np.mean([loss for of_row in of_rows for loss in of_row]))


def circle(labels, x, margin=0.4, scale=16.0, at=None):
    s, positives, negatives = cosines_and_pairs(labels, x, True)
    fixed = s if at is None else cosines_and_pairs(labels, at, True)[0]
    terms = []
    for i, (pulled, pushed) in enumerate(zip(positives, negatives, strict=True)):
        if not pulled or not pushed:
            continue
        pull = [scale * max(0, 1 + margin - fixed[i, p]) * (1 - margin - s[i, p]) for p in pulled]
        push = [scale * max(0, fixed[i, n] + margin) * (s[i, n] - margin) for n in pushed]
        total = np.logaddexp.reduce(pull) + np.logaddexp.reduce(push)
        terms.append(np.logaddexp(0, total))
    return float(np.mean(terms))


def logistic(value):
    return 1 / (1 + math.exp(-value))


def with_self(positives, rank_self):
    return [[i, *of_row] if rank_self else of_row for i, of_row in enumerate(positives)]


def smooth_ap(labels, x, temperature=0.01, rank_self=False, normalize=True):
    s, positives, negatives = cosines_and_pairs(labels, x, normalize)
    precisions = []
    for q, (pulled, pushed) in enumerate(
        zip(with_self(positives, rank_self), negatives, strict=True)
    ):
        of_query = []
        for p in pulled:
            before = 1 + sum(logistic((s[q, j] - s[q, p]) / temperature) for j in pulled if j != p)
            others = sum(logistic((s[q, n] - s[q, p]) / temperature) for n in pushed)
            of_query.append(before / (before + others))
        if of_query:
            precisions.append(np.mean(of_query))
    return 1 - float(np.mean(precisions))


def roadmap(
    labels,
    x,
    temperature=0.01,
    slope=100.0,
    margin=0.05,
    offset=1.44,
    calibration=1.0,
    positive_target=0.9,
    negative_target=0.6,
    rank_self=False,
    normalize=True,
):
    s, positives, negatives = cosines_and_pairs(labels, x, normalize)

    def step(d):
        if d > margin:
            return slope * (d - margin) + offset
        return logistic(d / temperature) + (0.5 if d >= 0 else 0)

    precisions = []
    for q, (pulled, pushed) in enumerate(
        zip(with_self(positives, rank_self), negatives, strict=True)
    ):
        of_query = []
        for p in pulled:
            before = 1 + sum(s[q, j] > s[q, p] for j in pulled)
            of_query.append(before / (before + sum(step(s[q, n] - s[q, p]) for n in pushed)))
        if of_query:
            precisions.append(np.mean(of_query))
    far = [positive_target - s[i, p] for i, of_row in enumerate(positives) for p in of_row]
    near = [s[i, n] - negative_target for i, of_row in enumerate(negatives) for n in of_row]
    parts = [[part for part in some if part > 0] for some in (far, near)]
    costs = sum(sum(part) / max(1, len(part)) for part in parts)
    return 1 - float(np.mean(precisions)) + calibration * costs


def recall_at_k(
    labels,
    x,
    k=(1, 2, 4, 8, 16),
    rank_temperature=0.01,
    count_temperature=1.0,
    rank_self=False,
    normalize=True,
    mix=None,  # in training only
    seed=0,
):
    s, positives, _ = cosines_and_pairs(labels, x, normalize)
    losses = []
    for q, pulled in enumerate(positives):
        ranks = [
            1
            + sum(
                logistic((s[q, j] - s[q, p]) / rank_temperature)
                for j in range(len(labels))
                if j != p and (j != q or rank_self)
            )
            for p in pulled
        ]
        for count in k if pulled else ():
            found = min(count, sum(logistic((count - rank) / count_temperature) for rank in ranks))
            losses.append(1 - found / min(count, len(pulled)))
    return float(np.mean(losses))


def cosines_to(x, proxies):
    """(n, C, K) cosines of rows and of the centers of classes."""
    proxies = proxies if proxies.ndim == 3 else proxies[:, None]
    units = np.array([unit(centers) for centers in proxies.astype(float)])
    return np.array([[[float(row @ center) for center in of] for of in units] for row in unit(x)])


def softmax_loss(labels, logits):
    losses = [
        np.logaddexp.reduce(of_row) - of_row[y] for y, of_row in zip(labels, logits, strict=True)
    ]
    return float(np.mean(losses))


def norm_softmax(labels, x, proxies, scale=20.0):
    return softmax_loss(labels, scale * cosines_to(x, proxies)[:, :, 0])


def proxy_nca(labels, x, proxies, scale=18.0, variant="plusplus"):
    logits = scale * cosines_to(x, proxies)[:, :, 0]
    if variant == "plusplus":
        return softmax_loss(labels, logits)
    losses = [
        np.logaddexp.reduce(np.delete(of_row, y)) - of_row[y]
        for y, of_row in zip(labels, logits, strict=True)
    ]
    return float(np.mean(losses))


def penalized(labels, x, proxies, scale, penalty):
    logits = cosines_to(x, proxies).max(axis=2)
    for of_row, y in zip(logits, labels, strict=True):
        of_row[y] = penalty(of_row[y])
    return softmax_loss(labels, scale * logits)


def cosface(labels, x, proxies, scale=64.0, margin=0.35, centers=1):
    return penalized(labels, x, proxies, scale, lambda cosine: cosine - margin)


def arcface(labels, x, proxies, scale=64.0, margin=0.5, centers=1, straight_through=False, at=None):
    def turned(cosine):
        angle = math.acos(cosine)
        if angle > math.pi - margin and not straight_through:
            return cosine - margin * math.sin(margin)
        return math.cos(angle + margin)

    if not straight_through or at is None:
        return penalized(labels, x, proxies, scale, turned)
    fixed = cosines_to(at, proxies).max(axis=2)  # the value at `at`, and the slope of the cosine
    logits = cosines_to(x, proxies).max(axis=2)
    for i, y in enumerate(labels):
        logits[i, y] += turned(fixed[i, y]) - fixed[i, y]
    return softmax_loss(labels, scale * logits)


def sub_center_arcface(labels, x, proxies, **options):
    return arcface(labels, x, proxies, **options)


def soft_triple(labels, x, proxies, centers=10, scale=20.0, gamma=0.1, margin=0.01, weight=0.2):
    cosines, classes = cosines_to(x, proxies), range(len(proxies))
    logits = np.empty(cosines.shape[:2])
    for i, y in enumerate(labels):
        for c in classes:
            shares = np.exp(cosines[i, c] / gamma - np.logaddexp.reduce(cosines[i, c] / gamma))
            logits[i, c] = scale * (float(shares @ cosines[i, c]) - (margin if c == y else 0.0))
    spread = 0.0
    if centers > 1:
        for of in proxies.astype(float):
            w = unit(of)
            pairs = [(k, j) for k in range(centers) for j in range(k + 1, centers)]
            spread += sum(math.sqrt(2 + 1e-5 - 2 * float(w[k] @ w[j])) for k, j in pairs)
        spread /= len(proxies) * centers * (centers - 1)
    return softmax_loss(labels, logits) + weight * spread


def proxy_anchor(labels, x, proxies, scale=32.0, margin=0.1):
    cosines, labels = cosines_to(x, proxies)[:, :, 0], list(labels)
    pulls, pushes = [], []
    for c in range(len(proxies)):
        own = [cosines[i, c] for i, y in enumerate(labels) if y == c]
        others = [cosines[i, c] for i, y in enumerate(labels) if y != c]
        if own:
            pulls.append(np.logaddexp.reduce([0, *(-scale * (s - margin) for s in own)]))
        pushes.append(np.logaddexp.reduce([0, *(scale * (s + margin) for s in others)]))
    return float(np.mean(pulls) + np.mean(pushes))


def sampled_classes(labels, x, proxies, base, rate, seed):
    """Outside training: the loss of all classes."""
    return globals()[base["name"]](labels, x, proxies)


def memory(labels, x, base, size, start_step=1000, weight=1.0):
    """Of a memory in which nothing was written: the loss of the batch."""
    return globals()[base](labels, x)


def matryoshka(labels, x, base, dims, weights=None):
    weights = weights or [1.0] * len(dims)
    pairs = zip(dims, weights, strict=True)
    return sum(weight * globals()[base](labels, x[:, :dim]) for dim, weight in pairs)


def weighted_sum(labels, x, parts):
    pairs = {name: part if isinstance(part, list) else (part, {}) for name, part in parts.items()}
    return sum(w * globals()[name](labels, x, **options) for name, (w, options) in pairs.items())
