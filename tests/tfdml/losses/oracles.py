"""Each loss once more, as loops over examples in float64: the reference of its tests."""

import functools
import itertools
import math
from collections import Counter

import numpy as np
from keras import ops

from tfdml import losses


def value(loss, labels, x, at=None):
    """The value of a loss, with what has no gradient held at the rows `at`."""
    x, at = (scaled(loss, rows) for rows in (x, x if at is None else at))
    return float(oracle(loss, [*map(int, labels)] if np.ndim(labels) == 1 else labels, x, at))


def scaled(loss, rows):
    if not loss.normalize:
        return np.asarray(rows)
    levels = np.split(np.asarray(rows), loss.levels, axis=1)
    return np.concatenate([*map(unit, levels)], axis=1)


@functools.singledispatch
def oracle(loss, labels, x, at):
    """The value of a loss of rows that are of unit length, if it normalizes."""
    raise NotImplementedError(type(loss))


def unit(rows):
    return np.array([row / np.linalg.norm(row) if np.linalg.norm(row) > 0 else row for row in rows])


def distance(a, b, squared):
    value = float(np.sum((a - b) ** 2))
    return value if squared else math.sqrt(value)


def pairs_of(labels):
    """The unordered pairs of one class, and those of two."""
    pairs = [*itertools.combinations(range(len(labels)), 2)]
    positive = [(i, j) for i, j in pairs if labels[i] == labels[j]]
    return positive, [pair for pair in pairs if pair not in positive]


def partners(labels):
    """The positives of each row, and its negatives."""
    rows = range(len(labels))
    positives = [[j for j in rows if j != i and labels[j] == labels[i]] for i in rows]
    return positives, [[j for j in rows if labels[j] != labels[i]] for i in rows]


def members_of(labels):
    members = {}
    for i, label in enumerate(labels):
        members.setdefault(int(label), []).append(i)
    return members


def average(values, rows, over):
    if over == "sum":
        return sum(values)
    if over == "batch":
        return sum(values) / rows
    if over == "active":
        values = [value for value in values if value > 0]
    return sum(values) / max(len(values), 1)


def mean(values):
    return average([*values], None, "all")


def logistic(value):
    return 1 / (1 + math.exp(-value))


@oracle.register(losses.ContrastiveLoss)
def contrastive(loss, labels, x, _):
    positive, negative = pairs_of(labels)
    if loss.pairs == "halves":
        listed = {(i, i + len(labels) // 2) for i in range(len(labels) // 2)}
        positive, negative = ([p for p in some if p in listed] for some in (positive, negative))
    values = [distance(x[i], x[j], loss.squared) for i, j in positive]
    for i, j in negative:
        gap = loss.margin - distance(x[i], x[j], loss.squared and not loss.squared_hinge)
        values.append(max(0.0, gap) ** (2 if loss.squared_hinge else 1))
    return average(values, len(labels), loss.average_over)


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


@oracle.register(losses.ClusteringLoss)
def clustering(loss, labels, x, _):
    """With the best of all choices of medoids, which the search finds in nine batches of ten."""
    distances = np.array([[distance(a, b, loss.squared) for b in x] for a in x])
    classes = members_of(labels)
    cost = sum(distances[np.ix_(rows, rows)].sum(axis=0).min() for rows in classes.values())
    choices = itertools.combinations(range(len(labels)), len(classes))
    scores = (clustering_score(distances, labels, medoids, loss.gamma) for medoids in choices)
    return max(0.0, max(scores) + cost)


@oracle.register(losses.HardAwareCascadeLoss)
def hdc(loss, labels, x, _):
    positive, negative = pairs_of(labels)
    if loss.average_over == "ordered":
        negative = [pair for i, j in negative for pair in ((i, j), (j, i))]
    parts = np.split(x, loss.levels, axis=1)

    def loss_of(level, i, j):
        d = distance(parts[level][i], parts[level][j], loss.squared)
        return d if labels[i] == labels[j] else loss.negative_factor * max(0.0, loss.margin - d)

    total, kept = 0.0, [positive, negative]
    for level, ratio in enumerate(loss.hard_ratios):
        ranked_at = max(level - 1, 0) if loss.selection == "previous" else level
        for kind, pairs in enumerate((positive, negative)):
            candidates = pairs if loss.selection == "own_all" else kept[kind]
            if kind or loss.mine_positives:
                hardest = sorted(candidates, key=lambda pair: (-loss_of(ranked_at, *pair), pair))
                kept[kind] = hardest[: int(ratio * len(pairs) + 1e-9)]
        values = [loss_of(level, i, j) for pairs in kept for i, j in pairs]
        over = "active" if loss.average_over == "ordered" else loss.average_over
        weight = 1.0 if loss.level_weights is None else loss.level_weights[level]
        total += weight * average(values, len(labels), over)
    return total


@oracle.register(losses.TripletLoss)
def triplet(loss, labels, x, _):
    values = []
    for a, (positives, negatives) in enumerate(zip(*partners(labels), strict=True)):
        near = [distance(x[a], x[row], loss.squared) for row in positives]
        far = [distance(x[a], x[row], loss.squared) for row in negatives]
        if not near or not far:
            continue
        if loss.mining == "all":
            mined = [*itertools.product(near, far)]
        elif loss.mining == "hard":
            mined = [(max(near), min(far))]
        else:
            mined = [(p, min((n for n in far if n > p), default=max(far))) for p in near]
        values += [max(0.0, p - n + loss.margin) for p, n in mined]
    return average(values, len(labels), loss.average_over)


@oracle.register(losses.LiftedStructuredLoss)
def lifted(loss, labels, x, _):
    positive, negative = pairs_of(labels)
    near = {i: [] for i in range(len(labels))}
    for i, j in negative:
        for row in (i, j):
            near[row].append(loss.margin - distance(x[i], x[j], False))
    total = 0.0
    for i, j in positive:
        if not near[i]:
            continue
        push = {
            "smooth": lambda a, b: np.logaddexp.reduce(a + b),
            "max": lambda a, b: max(a + b),
            "sum": lambda a, b: max(a) + max(b),
        }[loss.variant](near[i], near[j])
        total += max(0.0, push + distance(x[i], x[j], False)) ** 2
    return total / (2 * max(len(positive), 1))


@oracle.register(losses.NPairLoss)
def npair(loss, labels, x, _):
    members, tuples = members_of(labels), []
    if loss.pairs == "all":
        for i, (positives, negatives) in enumerate(zip(*partners(labels), strict=True)):
            tuples += [(i, j, negatives) for j in positives]
    else:
        longest = max(len(rows) for rows in members.values())
        for start in [0] if loss.pairs == "first" else range(0, longest, 2):
            group = {c: rows[start : start + 2] for c, rows in members.items()}
            group = {c: rows for c, rows in group.items() if len(rows) == 2}
            for c, (anchor, positive) in group.items():
                tuples.append((anchor, positive, [r[1] for o, r in group.items() if o != c]))
    values = []
    for i, j, others in tuples:
        pushes = (math.exp(loss.scale * (x[i] @ x[k] - x[i] @ x[j])) for k in others)
        values.append(math.log1p(sum(pushes)) + loss.l2 / 2 * (x[i] @ x[i] + x[j] @ x[j]))
    return mean(values)


@oracle.register(losses.BinomialDevianceLoss)
def binomial(loss, labels, x, _):
    steepness = -loss.alpha, loss.alpha * loss.negative_cost
    return sum(
        mean(np.logaddexp(0, steep * (x[i] @ x[j] - loss.beta)) for i, j in pairs)
        for pairs, steep in zip(pairs_of(labels), steepness, strict=True)
    )


@oracle.register(losses.HistogramLoss)
def histogram(loss, labels, x, _):
    histograms, num_bins = [], loss.num_bins
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


@oracle.register(losses.CoupledClustersLoss)
def coupled_clusters(loss, labels, x, _):
    values = []
    for rows in members_of(labels).values():
        others = [i for i in range(len(labels)) if i not in rows]
        if len(rows) > 1 and others:
            center = np.mean([x[i] for i in rows], axis=0)
            nearest = min(distance(x[i], center, True) for i in others)
            hinges = [max(0, distance(x[i], center, True) + loss.margin - nearest) for i in rows]
            values.append(sum(hinges) / 2)
    return mean(values)


@oracle.register(losses.GlobalOrthogonalRegularizer)
def gor(loss, labels, x, _):
    products = [x[i] @ x[j] for i, j in pairs_of(labels)[1]] or [0.0]
    return np.mean(products) ** 2 + max(0.0, np.mean(np.square(products)) - 1 / x.shape[1])


@oracle.register(losses.EntropyRegularizer)
def entropy(loss, labels, x, _):
    if loss.of == "parzen":
        width = 4 * loss.bandwidth**2
        return math.log(np.mean([math.exp(-distance(a, b, True) / width) for a in x for b in x]))
    chances = [
        logistic(loss.threshold - distance(a, b, True)) for a, b in itertools.combinations(x, 2)
    ]
    return mean(p * math.log(p) + (1 - p) * math.log(1 - p) for p in chances)


@oracle.register(losses.DensityRegularizer)
def density_of_classes(loss, labels, x, _):
    groups = {c: [x[i] for i in rows] for c, rows in members_of(labels).items() if len(rows) > 1}
    alpha, total, count = loss.alpha_init, 0.0, max(len(groups), 1)
    for rows in groups.values():
        center = np.mean(rows, axis=0)
        total += ((mean(distance(row, center, True) for row in rows) - alpha) ** 2 - alpha) / count
    if loss.correlation:
        initial = [loss.initial_density[c] ** loss.eta * alpha / count for c in groups]
        total += sum((a - b) ** 2 for a in initial for b in initial)
    return total


@oracle.register(losses.RegularizedLoss)
def regularized(loss, labels, x, at):
    return oracle(loss.base, labels, x, at) + loss.weight * value(loss.regularizer, labels, x)


@functools.cache
def score_of(layer, dim):
    """The score of two rows by a `PDDM` layer."""
    if not layer.built:
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
    for i, j in itertools.combinations(range(len(rows)), 2):
        scores[i, j] = scores[j, i] = score(rows[i], rows[j])
    return scores


@oracle.register(losses.DoubleHeaderHingeLoss)
def double_header(loss, labels, x, at):
    """Held at `at` are the range of the scores and the weights of near negatives."""
    temperature, positive = loss.temperature, pairs_of(labels)[0]
    scores = [[-distance(a, b, True) for b in x] for a in x]
    if loss.layer is not None:
        scores = symmetric(score_of(loss.layer, x.shape[1]), x)
    low, high = 0.0, 1.0
    if loss.score_scale == "minmax":
        held = symmetric(score_of(loss.layer, x.shape[1]), at)[np.triu_indices(len(x), 1)]
        low, high = held.min(), held.max()
    negatives = partners(labels)[1]
    pairs = [pair for pair in positive if negatives[pair[0]]]
    if loss.num_quadruplets == 1:
        pairs = sorted(pairs, key=lambda pair: scores[pair[0]][pair[1]])[:1]

    def near_negatives(row):
        distances = [distance(x[row], x[other], loss.squared) for other in negatives[row]]
        if temperature is None:
            return min(distances)
        gaps = [distance(at[row], at[other], True) for other in negatives[row]]
        return np.average(distances, weights=np.exp(-np.array(gaps) / temperature))

    def hinge(gap):
        smooth = temperature is not None
        return temperature * math.log1p(math.exp(gap / temperature)) if smooth else max(0.0, gap)

    def hardest(row):
        found = np.array([scores[row][other] for other in negatives[row]])
        if temperature is None:
            return found.max()
        return temperature * np.logaddexp.reduce(found / temperature)

    values = []
    for pair in pairs:
        apart = distance(x[pair[0]], x[pair[1]], loss.squared)
        gaps, value = [], 0.0
        for row in pair:
            if loss.layer is not None and loss.embedding_mining == "similarity":
                mined = max(negatives[row], key=lambda other: scores[row][other])
                gaps.append(distance(x[row], x[mined], loss.squared))
            else:
                gaps.append(near_negatives(row))
            if loss.layer is not None:
                ahead = hardest(row) - scores[pair[0]][pair[1]]
                value += hinge(loss.alpha + ahead / (high - low))
        embedding = sum(max(0.0, loss.beta + apart - gap) for gap in gaps[: loss.headers])
        weight = 1.0 if loss.layer is None else loss.embedding_weight
        values.append(value + weight * embedding)
    return mean(values)


@oracle.register(losses.MultiSimilarityLoss)
def multi_similarity(loss, labels, x, _):
    s, total = x @ x.T, 0.0
    alpha, beta, threshold, epsilon = loss.alpha, loss.beta, loss.threshold, loss.epsilon
    for i, (pulled, pushed) in enumerate(zip(*partners(labels), strict=True)):
        if epsilon is not None:
            least = min((s[i, p] for p in pulled), default=math.inf)
            most = max((s[i, n] for n in pushed), default=-math.inf)
            pulled = [p for p in pulled if s[i, p] - epsilon < most]
            pushed = [n for n in pushed if s[i, n] + epsilon > least]
        total += math.log1p(sum(math.exp(-alpha * (s[i, p] - threshold)) for p in pulled)) / alpha
        total += math.log1p(sum(math.exp(beta * (s[i, n] - threshold)) for n in pushed)) / beta
    return total / len(labels)


def softmax_of_pairs(loss, labels, x, repel):
    """For each row the cross-entropies of its positives, weighted by the overlap of the labels."""
    z, losses_of_rows = x @ x.T / loss.temperature, []
    sets = [{row} if np.ndim(row) == 0 else {*np.flatnonzero(row)} for row in labels]
    for i, own in enumerate(sets):
        others = [j for j in range(len(sets)) if j != i]
        pulled = {j: len(own & sets[j]) / len(own | sets[j]) for j in others if own & sets[j]}
        pushed = [z[i, j] for j in others if j not in pulled]
        shifted = {p: z[i, p] - loss.margin for p in pulled}
        losses_of_rows.append(
            [
                weight
                * (
                    np.logaddexp.reduce([*(shifted.values() if repel else [shifted[p]]), *pushed])
                    - shifted[p]
                )
                for p, weight in pulled.items()
            ]
        )
    return losses_of_rows


@oracle.register(losses.SupConLoss)
def supcon(loss, labels, x, _):
    return mean(map(mean, filter(None, softmax_of_pairs(loss, labels, x, repel=True))))


@oracle.register(losses.SINCERELoss)
def sincere(loss, labels, x, _):
    return mean(map(mean, filter(None, softmax_of_pairs(loss, labels, x, repel=False))))


@oracle.register(losses.NTXentLoss)
def ntxent(loss, labels, x, _):
    return mean(itertools.chain(*softmax_of_pairs(loss, labels, x, repel=False)))


@oracle.register(losses.CircleLoss)
def circle(loss, labels, x, at):
    s, fixed, m, terms = x @ x.T, at @ at.T, loss.margin, []
    for i, (pulled, pushed) in enumerate(zip(*partners(labels), strict=True)):
        if pulled and pushed:
            pull = [max(0, 1 + m - fixed[i, p]) * (1 - m - s[i, p]) for p in pulled]
            push = [max(0, fixed[i, n] + m) * (s[i, n] - m) for n in pushed]
            pull, push = (np.logaddexp.reduce(loss.scale * np.array(some)) for some in (pull, push))
            terms.append(np.logaddexp(0, pull + push))
    return mean(terms)


def average_precision_loss(loss, labels, s, before_step, step):
    """One minus the mean precision, with smooth steps among the positives and the negatives."""
    precisions = []
    for q, (pulled, pushed) in enumerate(zip(*partners(labels), strict=True)):
        pulled, found = [q, *pulled] if loss.rank_self else pulled, []
        for p in pulled:
            before = 1 + sum(before_step(s[q, j] - s[q, p]) for j in pulled if j != p)
            found.append(before / (before + sum(step(s[q, n] - s[q, p]) for n in pushed)))
        if found:
            precisions.append(mean(found))
    return 1 - mean(precisions)


@oracle.register(losses.SmoothAPLoss)
def smooth_ap(loss, labels, x, _):
    def step(d):
        return logistic(d / loss.temperature)

    return average_precision_loss(loss, labels, x @ x.T, step, step)


@oracle.register(losses.ROADMAPLoss)
def roadmap(loss, labels, x, _):
    s = x @ x.T

    def step(d):
        if d > loss.margin:
            return loss.slope * (d - loss.margin) + loss.offset
        return logistic(d / loss.temperature) + (0.5 if d >= 0 else 0)

    positives, negatives = partners(labels)
    far = [loss.positive_target - s[i, p] for i, rows in enumerate(positives) for p in rows]
    near = [s[i, n] - loss.negative_target for i, rows in enumerate(negatives) for n in rows]
    costs = sum(average(part, None, "active") for part in (far, near))
    ranking = average_precision_loss(loss, labels, s, lambda d: d > 0, step)
    return ranking + loss.calibration * costs


@oracle.register(losses.RecallAtKLoss)
def recall_at_k(loss, labels, x, _):
    s, values = x @ x.T, []
    for q, pulled in enumerate(partners(labels)[0]):
        ranked = [j for j in range(len(labels)) if j != q or loss.rank_self]
        ranks = [
            1 + sum(logistic((s[q, j] - s[q, p]) / loss.rank_temperature) for j in ranked if j != p)
            for p in pulled
        ]
        for count in loss.k if pulled else ():
            found = sum(logistic((count - rank) / loss.count_temperature) for rank in ranks)
            values.append(1 - min(count, found) / min(count, len(pulled)))
    return mean(values)


def cosines_to(loss, x):
    """(n, C, K) cosines of rows and of the centers of classes."""
    if not loss.layer.built:
        loss.layer.build(x.shape)
    proxies = np.asarray(ops.convert_to_numpy(loss.layer.proxies), "float64")
    centers = proxies.reshape(loss.num_classes, loss.centers, -1)[:, :, : x.shape[1]]
    return np.array([[unit(center) @ row for center in centers] for row in x])


def softmax_loss(labels, logits):
    return mean(np.logaddexp.reduce(row) - row[y] for y, row in zip(labels, logits, strict=True))


@oracle.register(losses.NormalizedSoftmaxLoss)
def norm_softmax(loss, labels, x, _):
    return softmax_loss(labels, loss.scale * cosines_to(loss, x)[:, :, 0])


@oracle.register(losses.ProxyNCALoss)
def proxy_nca(loss, labels, x, _):
    logits = loss.scale * cosines_to(loss, x)[:, :, 0]
    if loss.variant == "plusplus":
        return softmax_loss(labels, logits)
    rows = zip(labels, logits, strict=True)
    return mean(np.logaddexp.reduce(np.delete(row, y)) - row[y] for y, row in rows)


@oracle.register(losses.CosFaceLoss)
def cosface(loss, labels, x, _):
    cosines = cosines_to(loss, x).max(axis=2)
    cosines[range(len(x)), labels] -= loss.margin
    return softmax_loss(labels, loss.scale * cosines)


@oracle.register(losses.ArcFaceLoss)
def arcface(loss, labels, x, at):
    def turned(cosine):
        angle = math.acos(cosine)
        if angle > math.pi - loss.margin and not loss.straight_through:
            return cosine - loss.margin * math.sin(loss.margin)
        return math.cos(angle + loss.margin)

    fixed = cosines_to(loss, at).max(axis=2)  # the value at `at`, and the slope of the cosine
    cosines = cosines_to(loss, x).max(axis=2)
    for i, y in enumerate(labels):
        if loss.straight_through:
            cosines[i, y] += turned(fixed[i, y]) - fixed[i, y]
        else:
            cosines[i, y] = turned(cosines[i, y])
    return softmax_loss(labels, loss.scale * cosines)


@oracle.register(losses.SoftTripleLoss)
def soft_triple(loss, labels, x, _):
    cosines = cosines_to(loss, x)
    shares = np.exp(cosines / loss.gamma)
    logits = np.sum(shares * cosines, axis=2) / np.sum(shares, axis=2)
    logits[range(len(x)), labels] -= loss.margin
    spread, centers = 0.0, loss.centers
    if centers > 1:
        for rows in np.asarray(ops.convert_to_numpy(loss.layer.proxies), "float64"):
            for a, b in itertools.combinations(unit(rows), 2):
                spread += math.sqrt(2 + 1e-5 - 2 * float(a @ b))
        spread /= loss.num_classes * centers * (centers - 1)
    return softmax_loss(labels, loss.scale * logits) + loss.weight * spread


@oracle.register(losses.ProxyAnchorLoss)
def proxy_anchor(loss, labels, x, _):
    pulls, pushes = [], []
    for c, cosines in enumerate(cosines_to(loss, x)[:, :, 0].T):
        own = [s for s, y in zip(cosines, labels, strict=True) if y == c]
        others = [s for s, y in zip(cosines, labels, strict=True) if y != c]
        if own:
            pulls.append(math.log1p(sum(math.exp(-loss.scale * (s - loss.margin)) for s in own)))
        pushes.append(math.log1p(sum(math.exp(loss.scale * (s + loss.margin)) for s in others)))
    return mean(pulls) + mean(pushes)


@oracle.register(losses.CrossBatchMemoryLoss)
@oracle.register(losses.SampledClassesLoss)
def base_alone(loss, labels, x, at):
    """Outside training a memory is not read, and no classes are left out."""
    return oracle(loss.base, labels, x, at)


@oracle.register(losses.GuardedLoss)
def guarded(loss, labels, x, at):
    """The value of the base, which has an oracle of its own, with the negatives that are left."""
    s, kept = unit(at) @ unit(at).T, np.zeros((len(x), len(x)), bool)
    most = math.inf if loss.max_similarity is None else loss.max_similarity
    for i, (positives, negatives) in enumerate(zip(*partners(labels), strict=True)):
        nearest = max((s[i, p] for p in positives), default=math.inf)
        bounds = [most]
        bounds += [] if loss.margin is None else [nearest - loss.margin]
        bounds += [] if loss.relative_margin is None else [nearest * (1 - loss.relative_margin)]
        kept[i, negatives] = s[i, negatives] <= min(bounds)
    batch = losses.Batch(*map(ops.convert_to_tensor, (labels, x)))
    vars(batch)["negatives"] = ops.convert_to_tensor(kept)
    return loss.base.call(batch)


@oracle.register(losses.MatryoshkaLoss)
def matryoshka(loss, labels, x, _):
    pairs = zip(loss.dims, loss.option("weights"), strict=True)
    return sum(weight * value(loss.base, labels, x[:, :dim]) for dim, weight in pairs)


@oracle.register(losses.WeightedSum)
def weighted_sum(loss, labels, x, at):
    weights = (weight for weight, _ in loss.option("parts").values())
    return sum(w * value(part, labels, x) for w, part in zip(weights, loss.parts, strict=True))
