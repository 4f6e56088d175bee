"""Zero-shot classification: means of unseen classes from those of related classes."""

import numpy as np

from tfdml.checks import check, check_one_of, check_type
from tfdml.evaluation import inputs
from tfdml.evaluation.exact.means import EQUAL_MEANS
from tfdml.evaluation.hierarchy import ancestors_of, check_has_parents, parents_of_nodes
from tfdml.evaluation.nearest_mean import class_means, hits_by_means, shares_of_hits, unit_rows
from tfdml.evaluation.signatures import takes_arguments_of

_DESCRIPTIONS = {  # of the options `equal_means` of `zero_shot_accuracy`
    "expected": "in random order",
    "against": "before the own one",
    "as_one": "as one class",
}


def zero_shot_means(
    means, ids, hierarchy, unseen, *, ancestors="all", weights="equal", include_roots=True
):
    """Estimates the means of classes without images from their ancestors in a hierarchy.

    With mu_c the mean of a training class c and A(z) the ancestors of an unseen class z that have
    training classes at or below them:

        mu_a = mean of mu_c over the training classes c at or below a
        mu_z = weighted mean of mu_a over a in A(z)

    Classes with the same ancestors get bitwise equal means.

    Args:
        means: (classes, dim) floats, finite; one row per training class, as of `class_means`.
        ids: (classes,) integers of any size, the ids of the training classes, each once.
        hierarchy: Mapping from a node to its parent, or to a tuple of parents as in WordNet,
            without cycles. Nodes are the class ids and any other keys; nodes that are only parents
            are roots. It must have every training class and every unseen one.
        unseen: (z,) integers, the unseen classes; none of them in `ids`.
        ancestors: `"all"`, or `"parent"` for only the nearest that have training classes at or
            below them: in general the parents.
        weights: `"equal"`, or `"depth"` for 1 / (number of steps from the class up to the
            ancestor).
        include_roots: Whether roots count as ancestors; the mean of a single root is that of all
            training classes.

    Returns:
        (z, dim) float64, in the order of `unseen`.

    Raises:
        TypeError: If ids are not integers, means not floats or the hierarchy is not a mapping.
        ValueError: If the shapes disagree, an id occurs twice, a class is both trained and unseen
            or missing in the hierarchy, the hierarchy has cycles, or an unseen class has no
            ancestor with training classes.

    Source:
        Mensink, Verbeek, Perronnin, Csurka. Distance-based image classification: generalizing to
        new classes at near-zero cost. PAMI 2013; Rohrbach, Stark, Schiele. Evaluating
        knowledge transfer and zero-shot learning in a large-scale setting. CVPR 2011.
        Differs: `ancestors="parent"`, `weights="depth"` and `include_roots=False` are additions of
        this library.

    Example:
        Class 9 has the ancestors horse, with mean 2 (of 1 and 3), and animal, with mean 3 (of 1, 3
        and 5).

        >>> hierarchy = {1: "horse", 2: "horse", 3: "dog", 9: "horse", "horse": "animal",
        ...              "dog": "animal"}
        >>> line = np.array([[1.0], [3.0], [5.0]])
        >>> zero_shot_means(line, [1, 2, 3], hierarchy, [9]).tolist()
        [[2.5]]
        >>> zero_shot_means(line, [1, 2, 3], hierarchy, [9], ancestors="parent").tolist()
        [[2.0]]
    """
    check_one_of(("all", "parent"), ancestors=ancestors)
    check_one_of(("equal", "depth"), weights=weights)
    is_bool = isinstance(include_roots, (bool, np.bool_))
    check_type(is_bool, "`include_roots` must be a bool", include_roots=include_roots)
    shapes = {"ids.shape": np.shape(ids), "means.shape": np.shape(means)}
    means = inputs.finite_rows(means, "means", shapes)
    ids = inputs.class_ids(ids, "ids", shapes)
    check(len(ids) == len(means), "`ids` must have one id per row of `means`", **shapes)
    order = np.argsort(ids, kind="stable")
    ids, means = ids[order].tolist(), means[order].astype(np.float64)
    unseen = inputs.class_ids(unseen, "unseen").tolist()
    parents, relations = _relations(ids, unseen, hierarchy)
    placed_by = [_chosen(of, ancestors, weights, include_roots, parents) for of in relations]
    without = [node for node, weights_of in zip(unseen, placed_by, strict=True) if not weights_of]
    expectation = "every unseen class must have an ancestor with training classes at or below it"
    received = {"without": len(without), "first": without[:3], "include_roots": include_roots}
    check(not without, expectation, **received)
    used = {node for weights_of in placed_by for node, _ in weights_of}
    of_nodes = _means_of_nodes(means, ids, parents, used)
    placed = {weights_of: _weighted_mean(weights_of, of_nodes) for weights_of in set(placed_by)}
    return np.stack([placed[weights_of] for weights_of in placed_by])


def have_relatives(ids, hierarchy, unseen):
    """Which unseen classes have an ancestor, other than roots, with training classes below it.

    Args:
        ids: As for `zero_shot_means`.
        hierarchy: As for `zero_shot_means`.
        unseen: As for `zero_shot_means`.

    Returns:
        (z,) booleans, in the order of `unseen`. The others share only roots with training classes.

    Raises:
        TypeError: As `zero_shot_means`.
        ValueError: As `zero_shot_means`, except for classes without ancestors.

    Example:
        >>> hierarchy = {1: "horse", 9: "horse", 8: "cat", "horse": "animal", "cat": "animal"}
        >>> have_relatives([1], hierarchy, [9, 8]).tolist()
        [True, False]
    """
    ids = inputs.class_ids(ids, "ids").tolist()
    unseen = inputs.class_ids(unseen, "unseen").tolist()
    parents, relations = _relations(ids, unseen, hierarchy)
    return np.array([any(node in parents for node in of_class) for of_class in relations], bool)


def zero_shot_per_query(
    embeddings,
    labels,
    hierarchy,
    unseen_embeddings,
    unseen_labels,
    *,
    k=(1, 5),
    equal_means="against",
    renormalize_means=False,
    ancestors="all",
    weights="equal",
    include_roots=True,
):
    """Whether `zero_shot_accuracy` counts each unseen row as a hit.

    Args and errors are those of `zero_shot_accuracy`.

    Returns:
        {"top1": values, ...}, each (m,) float64 in [0, 1] in the order of the unseen rows.
    """
    check_one_of(EQUAL_MEANS, equal_means=equal_means)
    unseen_embeddings, unseen_labels = inputs.embeddings_and_labels(
        unseen_embeddings, unseen_labels, prefix="unseen_"
    )
    ids, means = class_means(embeddings, labels, normalize=renormalize_means)
    inputs.check_same_width(embeddings=means, unseen_embeddings=unseen_embeddings)
    unseen = np.unique(unseen_labels)
    placement = {"ancestors": ancestors, "weights": weights, "include_roots": include_roots}
    placed = zero_shot_means(means, ids, hierarchy, unseen, **placement)
    if renormalize_means:
        placed = unit_rows(placed)
    options = {"k": k, "equal_means": equal_means}
    return hits_by_means(unseen_embeddings, unseen_labels, unseen, placed, **options)


@takes_arguments_of(zero_shot_per_query)
def zero_shot_accuracy(*data, **options):
    """Top-K accuracy on rows of unseen classes, by the means that a hierarchy predicts for them.

    `zero_shot_means` predicts the means of the classes of `unseen_labels` from those of the classes
    of `labels`. Only unseen classes compete: flat top-K. Distances are Euclidean; a class at the
    same distance ranks before the true one. Exact, in blocks.

    A hierarchy cannot distinguish siblings: classes with the same ancestors have equal means.
    `equal_means` decides how they rank.

    Args:
        embeddings: (n, dim) floats, finite, of training classes; taken as given: not normalised.
        labels: (n,) or (n, 1) integers of any size.
        hierarchy: As for `zero_shot_means`.
        unseen_embeddings: (m, dim) floats, finite.
        unseen_labels: (m,) or (m, 1) integers; of other classes than `labels`.
        k: Positive integer or several, at most the number of unseen classes.
        equal_means: How classes with the mean of the true class rank. `"against"`: before it, as in
            all ties; `"expected"`: in random order, where a hit counts as its probability;
            `"as_one"`: all together as one of the K, so that siblings need not be distinguished.
        renormalize_means: Whether the means of training classes, and the unseen means computed
            from them, are scaled to unit length.
        ancestors: As for `zero_shot_means`.
        weights: As for `zero_shot_means`.
        include_roots: As for `zero_shot_means`.

    Returns:
        {K: accuracy} with Python floats in [0, 1], K ascending.

    Raises:
        TypeError: If labels are not integers, embeddings not floats or the hierarchy is not a
            mapping.
        ValueError: If shapes disagree, an input is empty or not finite, or `k` is not positive or
            exceeds the number of unseen classes; also as `zero_shot_means`.

    Source:
        Huang, Loy, Tang. Local similarity-aware deep feature embedding. NIPS 2016, Table 2, with
        800 classes of ImageNet 2010 to train and 200 unseen; Mensink et al., as for
        `zero_shot_means`.

    Example:
        >>> hierarchy = {1: "horse", 2: "dog", 8: "horse", 9: "dog"}
        >>> line = np.array([[0.0], [4.0], [1.0], [1.5], [3.0]])
        >>> zero_shot_accuracy(line[:2], [1, 2], hierarchy, line[2:], [8, 9, 9], k=1)
        {1: 0.6666666666666666}
    """
    return shares_of_hits(zero_shot_per_query(*data, **options))


def zero_shot_scores(embeddings, labels, hierarchy, unseen_embeddings, unseen_labels, **options):
    """Zero-shot accuracy for every `equal_means`, of all unseen classes and of related ones.

    Args:
        embeddings: As for `zero_shot_accuracy`.
        labels: As for `zero_shot_accuracy`.
        hierarchy: As for `zero_shot_accuracy`.
        unseen_embeddings: As for `zero_shot_accuracy`.
        unseen_labels: As for `zero_shot_accuracy`.
        **options: Options of `zero_shot_accuracy`, except `equal_means`.

    Returns:
        {"scores": {"top1": value, ...}, "unseen": {description of `equal_means`: {"top1": value,
        ...}}, "classes": {"known", "unseen", "unseen_with_kin"}}. "scores" are those of
        `equal_means="expected"`. If only some unseen classes have related known classes
        (`have_relatives`), "unseen" also has the scores of their rows alone, which still compete
        with all unseen classes.
    """
    unseen_labels = inputs.class_ids(unseen_labels, "unseen_labels")
    ids, classes = np.unique(unseen_labels, return_inverse=True)
    known = np.unique(labels)
    related = have_relatives(known, hierarchy, ids)
    data, unseen = (embeddings, labels, hierarchy, unseen_embeddings, unseen_labels), {}
    for kind, words in _DESCRIPTIONS.items():
        hits = zero_shot_per_query(*data, equal_means=kind, **options)
        unseen[words] = {name: float(np.mean(hit)) for name, hit in hits.items()}
        if 0 < np.count_nonzero(related) < len(related):
            unseen[f"{words}, with kin"] = {
                name: float(np.mean(hit[related[classes]])) for name, hit in hits.items()
            }
    counts = {"known": len(known), "unseen": len(ids), "unseen_with_kin": int(related.sum())}
    return {"scores": unseen[_DESCRIPTIONS["expected"]], "unseen": unseen, "classes": counts}


def _relations(ids, unseen, hierarchy):
    """The parents of nodes, and the relations of each unseen class, checked.

    The relations are {ancestor with training classes at or below it: steps up to it}.
    """
    parents, known = parents_of_nodes(hierarchy), set(ids)
    check(len(known) == len(ids), "`ids` must have each class once", classes=len(ids))
    shared = sorted(known & set(unseen))
    check(not shared, "`unseen` classes must not be trained", shared=shared[:3])
    check_has_parents(ids, parents, "training class")
    check_has_parents(unseen, parents, "unseen class")
    above = known.union(*(ancestors_of(node, parents) for node in ids))
    return parents, [
        {node: steps for node, steps in ancestors_of(z, parents).items() if node in above}
        for z in unseen
    ]


def _chosen(relations, ancestors, weights, include_roots, parents):
    """The pairs (ancestor, weight) of one unseen class, as a set."""
    kept = {node: steps for node, steps in relations.items() if include_roots or node in parents}
    if ancestors == "parent":
        nearest = min(kept.values(), default=0)
        kept = {node: steps for node, steps in kept.items() if steps == nearest}
    equal = weights == "equal"
    return frozenset((node, 1.0 if equal else 1.0 / steps) for node, steps in kept.items())


def _weighted_mean(weights_of, means):
    # In a fixed order, whatever the order of the parents: equal ancestors must give equal bits.
    total = sum(weight * means[node] for node, weight in sorted(weights_of, key=repr))
    return total / sum(sorted(weight for _, weight in weights_of))


def _means_of_nodes(means, ids, parents, nodes):
    """{node: mean of the training classes at or below it} for the given nodes."""
    totals, counts = {}, dict.fromkeys(nodes, 0)
    for mean, node in zip(means, ids, strict=True):
        for above in (node, *ancestors_of(node, parents)):
            if above in counts:
                totals[above] = totals.get(above, 0.0) + mean
                counts[above] += 1
    return {node: totals[node] / counts[node] for node in nodes}
