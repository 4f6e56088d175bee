"""Hierarchies of classes: a mapping from each node to its parent or parents, without cycles."""

import collections
import csv
import graphlib
from collections.abc import Mapping

from tfdml.checks import check, check_type
from tfdml.files import read_text


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


def every_nth_child(classes, hierarchy, share):
    """Holds out at most a `share` of the classes of each parent, evenly spaced in their order.

    Of the n classes of a parent, floor(n * share) are held out, so that every parent keeps one. A
    class with several parents belongs to the first.

    Args:
        classes: The classes, in their order.
        hierarchy: As for `zero_shot_means`; must have every class.
        share: Above 0 and below 1.

    Returns:
        List of the classes held out, in their order.
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
    """Reads a CSV file with the header `class,parent`.

    Each further line assigns a node to a parent; a node may have several lines.

    Returns:
        {node: tuple of parents} of texts, without surrounding blanks.

    Raises:
        OSError, ValueError: If it cannot be read or is not such a file, or there is a cycle; the
            message gives the file and the line.
    """
    parents = collections.defaultdict(list)
    for number, cells in enumerate(csv.reader(read_text(path).splitlines()), start=1):
        cells = [cell.strip() for cell in cells]
        if number == 1:
            header = ["class", "parent"]
            check(cells == header, f"{path} must begin with the line class,parent", line=cells)
        elif cells:
            complete = len(cells) == 2 and all(cells)
            check(complete, f"{path}, line {number} must be a class and its parent", line=cells)
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
