"""What the programs print of scores."""

from tfdml.evaluation.metrics import named_recalls, without_twins

_COMPARED = {
    "reranking": "Reranked candidates and a ranking of all images",
    "through_index": "The index and an exact search",
}


def scores_table(scores, columns=None):
    """Text table of scores, one line per set of scores and one column per score.

    Args:
        scores: `{"untrained": {name: score}, "trained": {name: score}}`, or other sets with the
            same names; values that are not dicts are ignored.
        columns: Names of the scores to show. Default: all.

    Example:
        >>> print(scores_table({"untrained": {"recall@1": 0.25}, "trained": {"recall@1": 0.75}}))
                   recall@1
        untrained    0.2500
        trained      0.7500
    """
    sets = {title: values for title, values in scores.items() if isinstance(values, dict)}
    names = [name for name in next(iter(sets.values())) if columns is None or name in columns]
    width = max(9, *map(len, sets))
    widths = {name: max(10, len(name) + 2) for name in names}
    rows = [" " * width + "".join(f"{name:>{widths[name]}}" for name in names)]
    for title, values in sets.items():
        cells = (f"{values[name]:{widths[name]}.4f}" for name in names)
        rows.append(f"{title:{width}}" + "".join(cells))
    return "\n".join(rows)


def results_text(results):
    """Formats the scores of `evaluate.py` as text.

    Args:
        results: {"scores": {name: value}} and whatever else `evaluate.py` writes to its JSON file,
            such as "intervals" {name: (low, high)}, "levels", "distances", "deviations" or
            "untrained" {name: value}, some of the scores before training.

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
        table = scores_table(results["levels"], columns=results["scores"])
        lines += ["\nScores of each level or size, by distance:", table]
    lines += _numbers("Standard deviations over the draws:", results.get("deviations"), width=12)
    if "unseen" in results:
        lines += [_classes_text(**results["classes"]), scores_table(results["unseen"])]
    lines += _numbers("Distances of all pairs, and their LDA score:", results.get("distances"))
    lines += _verification_lines(**results.get("verification", {}))
    for name, compared in _COMPARED.items():
        if name in results:
            lines.append(f"\n{compared}, on {results[name]['queries']:,} queries:")
            lines.append(scores_table(results[name]))
    if "approximate" in results:
        lines.append(_approximate_text(results["approximate"]))
    return "\n".join(lines)


def _numbers(head, values, width=0):
    """Lines of named numbers below a heading; no lines if there are no values."""
    if not values:
        return []
    width = width or max(map(len, values))
    return [f"\n{head}", *(f"{name:>{width}}  {value:.4f}" for name, value in values.items())]


def _classes_text(known, unseen, unseen_with_kin):
    related = f"{unseen_with_kin:,} have related ones among {known:,} known classes"
    return f"\nOf {unseen:,} unseen classes {related}. Scores if classes with equal means rank"


def _verification_lines(false_match_rate=0.0, calibrated=None, **scores):
    head = "Verification of pairs, with a threshold for a false-match rate of"
    lines = _numbers(f"{head} {false_match_rate:g}:", scores)
    return lines + _numbers("With the threshold of the training classes:", calibrated)


def _approximate_text(results):
    kinds = ("exact", "approximate", "lost", "overlap")
    table = scores_table({kind: named_recalls(results[kind]) for kind in kinds})
    fast, exact = (f"{results[name]:.3g} s" for name in ("search_seconds", "exact_search_seconds"))
    return f"\nApproximate search ({fast}) and exact search ({exact}):\n{table}"
