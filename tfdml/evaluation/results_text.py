"""The scores of one evaluation as printed text."""

from tfdml.evaluation.report import scores_table
from tfdml.evaluation.transfer_scores import transfer_lines

_SAME_AS_RECALL = ("precision@1", "ndcg@1")  # equal to recall@1


def results_text(results):
    """Formats the scores of `evaluate.py` as text.

    Args:
        results: {"scores": {name: value}} and, if measured, "intervals" {name: (low, high)},
            "levels", "distances", "verification", "reranking" and "approximate", as `evaluate.py`
            writes them to its JSON file; and "untrained" {name: value}, some of the scores before
            training.

    Returns:
        Lines of text, without a final newline.

    Example:
        >>> print(results_text({"scores": {"map": 0.5}, "intervals": {"map": (0.4, 0.6)}}))
                 map  0.5000  [0.4000, 0.6000]
        In brackets: 95 % bootstrap intervals over classes.
    """
    intervals, untrained, lines = results.get("intervals", {}), results.get("untrained", {}), []
    for name, value in without_twins(results["scores"]).items():
        interval = "  [{:.4f}, {:.4f}]".format(*intervals[name]) if name in intervals else ""
        before = f"  untrained {untrained[name]:.4f}" if name in untrained else ""
        lines.append(f"{name:>12}  {value:.4f}{interval}{before}")
    if intervals:
        lines.append("In brackets: 95 % bootstrap intervals over classes.")
    if "levels" in results:
        lines.append("\nScores of each level, by distance:")
        lines.append(
            scores_table(
                {
                    level: {
                        name: value for name, value in scores.items() if name in results["scores"]
                    }
                    for level, scores in results["levels"].items()
                }
            )
        )
    lines += transfer_lines(results)
    lines += _numbers("Distances of all pairs, and their LDA score:", results.get("distances"))
    if "verification" in results:
        verification = dict(results["verification"])
        calibrated = verification.pop("calibrated", None)
        rate = f"{verification.pop('false_match_rate'):g}"
        lines += _numbers(
            f"Verification of pairs, with a threshold for a false-match rate of {rate}:",
            verification,
        )
        lines += _numbers("With the threshold of the training classes:", calibrated)
    if "reranking" in results:
        queries = results["reranking"]["queries"]
        lines.append(f"\nReranked candidates and a ranking of all images, on {queries:,} queries:")
        lines.append(scores_table(results["reranking"]))
    if "approximate" in results:
        index = results["approximate"]
        lines.append(
            f"\nApproximate search ({index['search_seconds']:.3g} s) and exact search "
            f"({index['exact_search_seconds']:.3g} s):"
        )
        kinds = ("exact", "approximate", "lost", "overlap")
        lines.append(scores_table({kind: named_recalls(index[kind]) for kind in kinds}))
    return "\n".join(lines)


def without_twins(scores):
    """Drops metrics that equal recall@1 by definition."""
    return {name: value for name, value in scores.items() if name not in _SAME_AS_RECALL}


def named_recalls(recalls):
    """{1: value, ...} -> {"recall@1": value, ...}."""
    return {f"recall@{k}": recall for k, recall in recalls.items()}


def _numbers(head, values):
    """Lines of named numbers below a heading; no lines if there are no values."""
    if not values:
        return []
    width = max(map(len, values))
    return [f"\n{head}", *(f"{name:>{width}}  {value:.4f}" for name, value in values.items())]
