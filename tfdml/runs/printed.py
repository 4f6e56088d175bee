"""What the programs print of scores, and how they say what was scored."""

import pathlib

from tfdml.evaluation.metrics import named_recalls, without_twins
from tfdml.runs.task_options import CHANGING, OF_FILES, RERANKING

_COMPARED = {
    "reranking": "Reranked candidates and a ranking of all images",
    "through_index": "The index and an exact search",
}
_TABLES = {
    "methods": "Methods, and the share of the draws that chose each",
    "rules": "Thresholds of other classes; naive: on the distance of the nearest image",
}


def scores_table(scores, columns=None):
    """Text table of sets of scores {title: {name: score}}, of all names or those in `columns`."""
    sets = {title: values for title, values in scores.items() if isinstance(values, dict)}
    names = [name for name in next(iter(sets.values())) if columns is None or name in columns]
    width = max(9, *map(len, sets))
    widths = {name: max(10, len(name) + 2) for name in names}
    rows = [" " * width + "".join(f"{name:>{widths[name]}}" for name in names)]
    for title, values in sets.items():
        texts = {name: f"{value:.4f}" for name, value in values.items()}
        cells = (f"{texts.get(name, ''):>{widths[name]}}" for name in names)
        rows.append(f"{title:{width}}" + "".join(cells))
    return "\n".join(rows)


def results_text(results):
    """Lines of text of what `evaluate.py` writes as JSON, {"scores": {name: value}, ...}."""
    intervals, untrained, lines = results.get("intervals", {}), results.get("untrained", {}), []
    copies = results.get("without_copies", {})
    others = copies.get("scores", {})
    for name, value in without_twins(results["scores"]).items():
        interval = "  [{:.4f}, {:.4f}]".format(*intervals[name]) if name in intervals else ""
        before = f"  untrained {untrained[name]:.4f}" if name in untrained else ""
        without = f"  without copies {others[name]:.4f}" if name in others else ""
        lines.append(f"{name:>12}  {value:.4f}{interval}{before}{without}")
    if intervals:
        kind = "jackknife" if "rules" in results else "bootstrap"
        lines.append(f"In brackets: 95 % {kind} intervals over classes.")
    if copies:
        count = f"{copies['copies']:,} images"
        lines.append(f"Copies: {count} show the picture of another, or of one of the training.")
    if "levels" in results:
        table = scores_table(results["levels"], columns=results["scores"])
        lines += ["\nScores of each level or size, by distance:", table]
    lines += _numbers("Standard deviations over the draws:", results.get("deviations"), width=12)
    if "unseen" in results:
        lines += [_classes_text(**results["classes"]), scores_table(results["unseen"])]
    lines += _numbers("Distances of all pairs, and their LDA score:", results.get("distances"))
    lines += _verification_lines(**results.get("verification", {}))
    for name, head in _TABLES.items():
        lines += [f"\n{head}:", scores_table(results[name])] if name in results else []
    for name, compared in _COMPARED.items():
        if name in results:
            lines.append(f"\n{compared}, on {results[name]['queries']:,} queries:")
            lines.append(scores_table(results[name]))
    if "findings" in results:
        counts = (f"{name:>12}  {count:,}" for name, count in results["findings"].items())
        lines += ["\nFindings:", *counts]
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


def summary(options, model, images):
    """What was scored, and how it was ranked or classified if not in the usual way."""
    task, split = options.task, images.split
    draws = f"{options.draws} draw{'s' * (options.draws > 1)}" if options.draws else ""
    lines = []
    if task == "zero_shot":
        split = split.subset(images.queries)
        lines.append("the nearest mean of the related classes of each class")
    elif images.queries is not None:
        lines.append(_searched(images.queries))
    if task == "ncm":
        shots = f"{options.shots:,} at most" if options.shots else "half"
        lines.append(f"the nearest mean of {shots} of the images of each class, {draws}")
    if task == "one_per_class":
        lines.append(f"among one image of each class, {draws}")
    if task == "open_set":
        lines.append(f"four fifths of the classes known by half of their images, {draws}")
    if options.gallery:
        index = ", through its index" if options.index else ""
        lines.append(f"in the gallery {options.gallery}{index}")
    if options.rerank:
        lines.append(f"the {options.rerank:,} nearest of each ranked by the learned similarity")
    elif options.expand_queries:
        lines.append(f"each searching with its {options.expand_queries:,} nearest")
    elif options.reciprocal:
        lines.append(f"ranked by mutual neighbours among the {options.reciprocal:,} nearest")
    elif options.rank_by == "similarity":
        lines.append("ranked by the learned similarity")
    dataset = f" ({options.split}) of {options.dataset}" if options.dataset else ""
    scored = f"{model.version or options.embeddings} on {_counts(split)}{dataset}"
    return ",\n".join([scored, *lines])


def page_facts(options, model, images):
    """{word: text}, how the scores came about."""
    dataset = f", {options.split} of {_data_name(options)}" if options.dataset else ""
    facts = {
        "model": model.version or options.embeddings,
        "images": _counts(images.split) + dataset,
        "ranked by": "distance" if options.rank_by == "distance" else "the learned similarity",
    }
    changed = options.changed((*OF_FILES, *CHANGING, "whiten", *RERANKING))
    facts |= {name.replace("_", " "): getattr(options, name) for name in changed}
    recipe = ("loss", "backbone", "embedding_dim", "steps", "seed")
    facts |= {name.replace("_", " "): model.recipe[name] for name in recipe if name in model.recipe}
    if images.queries is not None:
        facts["searched"] = _searched(images.queries)
    return facts


def page_title(options, model):
    scored = f" on {_data_name(options)} ({options.split})" if model.version else ""
    return f"{model.name}{scored}"


def _data_name(options):
    """The name of the dataset, and of a user's own images that of their folder or file."""
    own = options.dataset in ("folder", "csv", "cache") and options.data_dir
    return f"{options.dataset} {pathlib.Path(own).resolve().name}" if own else options.dataset


def _counts(split):
    return f"{len(split.labels):,} images of {split.num_classes:,} classes"


def _searched(queries):
    return f"{queries.sum():,} queries in a gallery of {(~queries).sum():,}"
