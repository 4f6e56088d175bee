"""Summary statistics of few-shot and zero-shot evaluation."""

import numpy as np

from tfdml.evaluation.few_shot import few_shot_accuracies
from tfdml.evaluation.zero_shot import have_relatives, zero_shot_per_query

_EQUAL_MEANS = {  # descriptions of the options of `zero_shot_accuracy`
    "expected": "in random order",
    "against": "before the own one",
    "as_one": "as one class",
}


def few_shot_scores(embeddings, labels, **options):
    """Mean and standard deviation of `few_shot_accuracies` over the draws.

    Args:
        embeddings: As for `few_shot_accuracies`.
        labels: As for `few_shot_accuracies`.
        **options: Options of `few_shot_accuracies`.

    Returns:
        {"scores": {"top1": mean, ...}, "deviations": {"top1": deviation, ...}}, Python floats.
        Deviations divide by draws - 1 and are missing for a single draw.
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
