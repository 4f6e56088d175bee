"""Zero-shot classification: means of unseen classes from those of related ones in a hierarchy."""

import collections
import graphlib
from collections.abc import Mapping

import numpy as np

from tfdml.checks import check, check_bool, check_one_of, check_type
from tfdml.evaluation import inputs
from tfdml.evaluation.nearest_mean import class_means, hits_by_rank, ranks_of_means, unit_rows
from tfdml.files import read_table

# Where classes with the own mean rank, by `equal_means`.
_PLACES = {"expected": "in random order", "against": "before the own one", "as_one": "as one class"}


def zero_shot_means(
    means, ids, hierarchy, unseen, *, ancestors="all", weights="equal", include_roots=True
):
    """Estimates the means of classes without images from their ancestors in a hierarchy.

    With A(z) the ancestors of an unseen class z that have training classes c at or below them:

        mu_a = mean of mu_c over the training classes c at or below a
        mu_z = weighted mean of mu_a over a in A(z)

    Classes with the same ancestors get bitwise equal means.

    Args:
        means, ids: Means of the training classes and their ids, as of `class_means`, in any order.
        hierarchy: Mapping, without cycles, from class ids and other nodes to a parent, or to a
            tuple of parents as in WordNet; those only parents are roots.
        unseen: (z,) integers, the unseen classes; none of them in `ids`.
        ancestors: `"all"`, or `"parent"` for only the nearest of A(z): in general the parents.
        weights: `"equal"`, or `"depth"` for 1 / (number of steps up to the ancestor).
        include_roots: Whether roots count as ancestors.

    Returns:
        (z, dim) float64, in the order of `unseen`.

    Raises:
        TypeError, ValueError: If an argument is not such, a class occurs twice or is not in the
            hierarchy, or an unseen class has no ancestor with training classes.

    Source:
        Mensink et al., as for `nearest_class_mean`; Rohrbach, Stark, Schiele. Evaluating knowledge
        transfer and zero-shot learning in a large-scale setting. CVPR 2011.
        Differs: `"parent"`, `"depth"` and `include_roots=False` are additions of this library.
    """
    check_one_of(("all", "parent"), ancestors=ancestors)
    check_one_of(("equal", "depth"), weights=weights)
    check_bool(include_roots=include_roots)
    means = inputs.finite_rows(means, "means").astype(np.float64)
    unseen, below, relations = _relations(ids, hierarchy, unseen, include_roots)
    rows = {"ids": len(ids), "means": len(means)}
    check(len(ids) == len(means), "`ids` must have one id per row of `means`", **rows)
    without = [node for node, steps in zip(unseen, relations, strict=True) if not steps]
    expectation = "every unseen class must have an ancestor with training classes at or below it"
    received = {"without": len(without), "first": without[:3], "include_roots": include_roots}
    check(not without, expectation, **received)
    node_means = {node: means[places].mean(axis=0) for node, places in below.items()}
    placed = []
    for steps in relations:
        # In a fixed order, whatever that of the parents: equal ancestors must give equal bits.
        chosen = sorted(steps, key=repr)
        if ancestors == "parent":
            chosen = [node for node in chosen if steps[node] == min(steps.values())]
        shares = [1.0 if weights == "equal" else 1.0 / steps[node] for node in chosen]
        placed.append(np.average([node_means[node] for node in chosen], axis=0, weights=shares))
    return np.stack(placed)


def have_relatives(ids, hierarchy, unseen):
    """Which unseen classes have an ancestor, other than roots, with training classes below it.

    Arguments and errors are those of `zero_shot_means`; returns (z,) booleans.
    """
    *_, relations = _relations(ids, hierarchy, unseen, include_roots=False)
    return np.array([len(steps) > 0 for steps in relations], bool)


def zero_shot_accuracy(
    embeddings,
    labels,
    hierarchy,
    unseen_embeddings,
    unseen_labels,
    *,
    k=(1, 5),
    equal_means="against",
    renormalize_means=False,
    **placing,
):
    """Top-K accuracy on rows of unseen classes, by the means that a hierarchy predicts for them.

    Only unseen classes compete: flat top-K, where ties count against the row. Errors are those of
    `class_means` and `zero_shot_means`.

    Args:
        embeddings, labels: Rows of training classes, as for `class_means`.
        hierarchy, **placing: As for `zero_shot_means`.
        unseen_embeddings, unseen_labels: Rows of other classes.
        k: Positive integer or several, at most the number of unseen classes.
        equal_means: How classes with the mean of the true class, such as its siblings, rank:
            `"against"`: before it, as in all ties; `"expected"`: in random order, where a hit
            counts as its probability; `"as_one"`: all together as one of the K.
        renormalize_means: Whether means, before and after placing, are scaled to unit length.

    Returns:
        {K: accuracy} with Python floats in [0, 1], K ascending.

    Source:
        Huang, Loy, Tang. Local similarity-aware deep feature embedding. NIPS 2016, Table 2, with
        800 classes of ImageNet 2010 to train and 200 unseen.
    """
    data = embeddings, labels, hierarchy, unseen_embeddings, unseen_labels
    options = {"k": k, "equal_means": equal_means, "renormalize_means": renormalize_means}
    hits = zero_shot_per_query(*data, **options, **placing)
    return {int(name[3:]): float(np.mean(hit)) for name, hit in hits.items()}


def zero_shot_per_query(
    embeddings,
    labels,
    hierarchy,
    unseen_embeddings,
    unseen_labels,
    *,
    equal_means="against",
    **options,
):
    """{"top1": (m,) values in [0, 1], ...}, of which `zero_shot_accuracy` returns the means.

    Arguments and errors are the same.
    """
    check_one_of(_PLACES, equal_means=equal_means)
    hits = _hits(embeddings, labels, hierarchy, unseen_embeddings, unseen_labels, **options)
    return {f"top{count}": hit for count, hit in hits[equal_means].items()}


def zero_shot_scores(embeddings, labels, hierarchy, unseen_embeddings, unseen_labels, **options):
    """`zero_shot_accuracy` by every `equal_means`, also of the classes that `have_relatives`."""
    known = np.unique(labels)
    ids, classes = np.unique(inputs.class_ids(unseen_labels), return_inverse=True)
    related = have_relatives(known, hierarchy, ids)
    parts = {"": np.ones(len(classes), bool)}
    if related.any() and not related.all():
        parts[", with kin"] = related[classes]
    hits = _hits(embeddings, labels, hierarchy, unseen_embeddings, unseen_labels, **options)
    unseen = {
        f"{words}{part}": {f"top{k}": float(np.mean(hit[rows])) for k, hit in hits[kind].items()}
        for kind, words in _PLACES.items()
        for part, rows in parts.items()
    }
    counts = {"known": len(known), "unseen": len(ids), "unseen_with_kin": int(related.sum())}
    return {"scores": unseen[_PLACES["expected"]], "unseen": unseen, "classes": counts}


def every_nth_child(classes, hierarchy, share):
    """Holds out at most a `share` of the classes of each parent, evenly spaced in their order.

    Of the n classes of a parent, floor(n * share) are held out, so that every parent keeps one. A
    class with several parents belongs to the first. The hierarchy is that of `zero_shot_means`.
    """
    check(0 < share < 1, "`share` must be > 0 and < 1", share=share)
    parents = parents_of_nodes(hierarchy, classes)
    seen, taken, held_out = collections.Counter(), collections.Counter(), []
    for node in classes:
        parent = parents[node][0]
        seen[parent] += 1
        if int(seen[parent] * share + 1e-9) > taken[parent]:  # 50 * 0.58 falls short of 29
            taken[parent] += 1
            held_out.append(node)
    return held_out


def read_hierarchy(path):
    """Reads a CSV file with the header `class,parent`, and a line for each parent of a node.

    Returns:
        {node: tuple of parents} of texts, without surrounding blanks.

    Raises:
        OSError, ValueError: If it cannot be read or is not such a file, or there is a cycle.
    """
    parents = collections.defaultdict(list)
    names, lines = read_table(path)
    check(names == ["class", "parent"], f"{path} must begin with the line class,parent", line=names)
    for where, cells in lines:
        complete = len(cells) == 2 and all(cells)
        check(complete, f"{where} must be a class and its parent", line=cells)
        parents[cells[0]].append(cells[1])
    check(parents, f"{path} must list classes and their parents", lines=0)
    try:
        return parents_of_nodes({node: tuple(above) for node, above in parents.items()})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def by_class_id(hierarchy, class_names):
    """The hierarchy with ids instead of the names of classes, given {class id: name}."""
    parents = parents_of_nodes(hierarchy, class_names.values())
    ids = {name: number for number, name in class_names.items()}
    check(len(ids) == len(class_names), "classes must have different names", names=len(ids))
    return {
        ids.get(node, node): tuple(ids.get(parent, parent) for parent in above)
        for node, above in parents.items()
    }


def by_super_class(labels, super_labels):
    """{class id: (super-class,), super-class: ("all",)} of two arrays of (n,) integer ids."""
    pairs = sorted(set(zip(labels.tolist(), super_labels.tolist(), strict=True)))
    parents = {label: (f"super-class {above}",) for label, above in pairs}
    return parents | {above: ("all",) for (above,) in parents.values()}


def parents_of_nodes(hierarchy, classes=()):
    """{node: tuple of its parents, each once} of a hierarchy as for `zero_shot_means`, checked."""
    expectation = "`hierarchy` must map each class to its parent or a tuple of parents"
    check_type(isinstance(hierarchy, Mapping), expectation, type=type(hierarchy).__name__)
    parents = {}
    for node, above in hierarchy.items():
        parents[node] = tuple(dict.fromkeys(above if isinstance(above, tuple) else (above,)))
        check(None not in parents[node], "`hierarchy` must not have None as a parent", node=node)
    try:
        graphlib.TopologicalSorter(parents).prepare()
    except graphlib.CycleError as error:
        check(False, "`hierarchy` must have no cycles", cycle=error.args[1][::-1])
    missing = [node for node in classes if node not in parents]
    expectation = "`hierarchy` must have a parent for every class"
    check(not missing, expectation, without=len(missing), first=missing[:3])
    return parents


def ancestors_of(node, parents):
    """{ancestor: smallest number of steps from the node up to it}, nearest first."""
    steps, level, count = {}, [node], 0
    while level:
        count += 1
        above = (parent for child in level for parent in parents.get(child, ()))
        level = {parent: count for parent in above if parent not in steps}
        steps |= level
    return steps


def _relations(ids, hierarchy, unseen, include_roots):
    """`unseen`, {node: places in `ids` at or below it}, {such node above: steps} of each unseen."""
    ids, unseen = inputs.class_ids(ids, "ids").tolist(), inputs.class_ids(unseen, "unseen").tolist()
    check(len(set(ids)) == len(ids), "`ids` must have each class once", classes=len(ids))
    shared = sorted(set(ids) & set(unseen))
    check(not shared, "`unseen` classes must not be trained", shared=shared[:3])
    parents = parents_of_nodes(hierarchy, [*ids, *unseen])
    below = collections.defaultdict(list)
    for place in sorted(range(len(ids)), key=ids.__getitem__):
        for node in (ids[place], *ancestors_of(ids[place], parents)):
            below[node].append(place)
    kept = {node for node in below if include_roots or node in parents}
    above = (ancestors_of(node, parents).items() for node in unseen)
    relations = [{node: steps for node, steps in pairs if node in kept} for pairs in above]
    return unseen, below, relations


def _hits(
    embeddings, labels, hierarchy, rows, unseen_labels, k=(1, 5), renormalize_means=False, **placing
):
    """{kind of `equal_means`: {K: (m,) probabilities of a hit}}."""
    rows, unseen_labels = inputs.embeddings_and_labels(rows, unseen_labels, "unseen_")
    ids, means = class_means(embeddings, labels, normalize=renormalize_means)
    inputs.check_alike("dim", embeddings=means, unseen_embeddings=rows)
    unseen, own = np.unique(unseen_labels, return_inverse=True)
    means = zero_shot_means(means, ids, hierarchy, unseen, **placing)
    means = unit_rows(means) if renormalize_means else means
    distinct, groups, sizes = np.unique(means, axis=0, return_inverse=True, return_counts=True)
    group = groups.reshape(-1)[own]
    ranks = ranks_of_means(rows, own, means, np.arange(len(means)))
    as_one = ranks_of_means(rows, group, distinct, np.arange(len(distinct)))
    kinds = {"expected": (ranks, sizes[group]), "against": (ranks, 1), "as_one": (as_one, 1)}
    return {
        kind: hits_by_rank(last, k, len(means), equals) for kind, (last, equals) in kinds.items()
    }
