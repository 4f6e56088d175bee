"""What is told of the transfer to new classes: scores, how sure they are, of how many classes."""

import numpy as np

from tfdml.evaluation.few_shot import few_shot_accuracies
from tfdml.evaluation.report import scores_table
from tfdml.evaluation.zero_shot import have_relatives, zero_shot_per_query

_EQUAL_MEANS = {  # of `zero_shot_accuracy`, in words
    "expected": "in random order",
    "against": "before the own one",
    "as_one": "as one class",
}


def few_shot_scores(embeddings, labels, **options):
    """The mean of `few_shot_accuracies` over the draws, and their standard deviation.

    Args:
        embeddings: As for `few_shot_accuracies`.
        labels: As for `few_shot_accuracies`.
        **options: Those of `few_shot_accuracies`.

    Returns:
        {"scores": {"top1": mean, ...}, "deviations": {"top1": deviation, ...}}, Python floats; the
        deviations, which divide by draws - 1, of two draws or more.
    """
    accuracies = few_shot_accuracies(embeddings, labels, **options)
    tops = {f"top{k}": values for k, values in accuracies.items()}
    return {
        "scores": {name: float(np.mean(values)) for name, values in tops.items()},
        "deviations": {
            name: float(np.std(values, ddof=1)) for name, values in tops.items() if len(values) > 1
        },
    }


def zero_shot_scores(embeddings, labels, hierarchy, unseen_embeddings, unseen_labels, **options):
    """Every way to count the classes of one mean, for all unseen classes and for those with kin.

    Args:
        embeddings: As for `zero_shot_accuracy`.
        labels: As for `zero_shot_accuracy`.
        hierarchy: As for `zero_shot_accuracy`.
        unseen_embeddings: As for `zero_shot_accuracy`.
        unseen_labels: As for `zero_shot_accuracy`.
        **options: Those of `zero_shot_accuracy` but `equal_means`.

    Returns:
        {"scores": {"top1": value, ...}, "unseen": {way to count: the same}, "classes": {"known",
        "unseen", "unseen_with_kin"}}. The scores are those of classes of one mean in random order.
        Where some unseen classes have no kin, `have_relatives` says which, the rows of the others
        are also scored alone, among all unseen classes.
    """
    ids, classes = np.unique(unseen_labels, return_inverse=True)
    known = np.unique(labels)
    related = have_relatives(known, hierarchy, ids)
    unseen = {}
    for kind, words in _EQUAL_MEANS.items():
        hits = zero_shot_per_query(
            *(embeddings, labels, hierarchy, unseen_embeddings, unseen_labels),
            equal_means=kind,
            **options,
        )
        unseen[words] = {name: float(np.mean(hit)) for name, hit in hits.items()}
        if 0 < np.count_nonzero(related) < len(related):
            unseen[f"{words}, with kin"] = {
                name: float(np.mean(hit[related[classes]])) for name, hit in hits.items()
            }
    counts = {"known": len(known), "unseen": len(ids), "unseen_with_kin": int(related.sum())}
    return {"scores": unseen[_EQUAL_MEANS["expected"]], "unseen": unseen, "classes": counts}


def transfer_lines(results):
    """Lines for the screen on what stands beside the scores in either result."""
    lines = []
    if results.get("deviations"):
        lines.append("\nTheir standard deviations over the draws:")
        lines += [f"{name:>12}  {value:.4f}" for name, value in results["deviations"].items()]
    if "unseen" in results:
        counts = results["classes"]
        lines.append(
            f"\nOf {counts['unseen']:,} unseen classes {counts['unseen_with_kin']:,} have kin "
            f"among {counts['known']:,} known ones. Classes of one mean count"
        )
        lines.append(scores_table(results["unseen"]))
    return lines
