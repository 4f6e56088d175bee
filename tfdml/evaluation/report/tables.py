"""Scores as text."""

_SAME_AS_RECALL = ("precision@1", "ndcg@1")  # equal to recall@1


def comparison_table(comparison):
    """Text table of a comparison: for each score, one line per run with its difference.

    A star marks a difference whose interval excludes 0.

    Args:
        comparison: The result of `compare`.

    Example:
        >>> score = {"score": 0.5, "low": 0.4, "high": 0.6}
        >>> more = {"difference": 0.02, "low": 0.01, "high": 0.03, "p": 0.002}
        >>> runs = {"a": {"map": score}, "b": {"map": {**score, "difference": more}}}
        >>> print(comparison_table({"runs": runs, "confidence": 0.95, "left_out": []}))
        map
          a  0.5000 [0.4000, 0.6000]
          b  0.5000 [0.4000, 0.6000]  +0.0200 [+0.0100, +0.0300] *
        <BLANKLINE>
        [ ]: 95% bootstrap intervals over classes, not over training seeds.
        *: the interval of the difference from a excludes 0.
    """
    runs, lines = comparison["runs"], []
    first, width = next(iter(runs)), max(map(len, runs))
    for score in without_twins(runs[first]):
        lines.append(score)
        for name, scores in runs.items():
            line = f"  {name:{width}}  {_interval(scores[score], 'score')}"
            if difference := scores[score].get("difference"):
                excludes = not difference["low"] <= 0 <= difference["high"]
                line += f"  {_interval(difference, 'difference', '+')}{' *' if excludes else ''}"
            lines.append(line)
    share = f"{100 * comparison['confidence']:.6g}%"
    lines.append(f"\n[ ]: {share} bootstrap intervals over classes, not over training seeds.")
    lines.append(f"*: the interval of the difference from {first} excludes 0.")
    if comparison["left_out"]:
        lines.append(f"Not scored in all runs: {', '.join(comparison['left_out'])}.")
    return "\n".join(lines)


def without_twins(scores):
    """Drops metrics that equal recall@1 by definition."""
    return {name: value for name, value in scores.items() if name not in _SAME_AS_RECALL}


def named_recalls(recalls):
    """{1: value, ...} -> {"recall@1": value, ...}."""
    return {f"recall@{k}": recall for k, recall in recalls.items()}


def _interval(numbers, name, sign=""):
    value, low, high = (f"{numbers[key]:{sign}.4f}" for key in (name, "low", "high"))
    return f"{value} [{low}, {high}]"
