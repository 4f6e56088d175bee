"""The section of the page on the race."""

import statistics

from benchmarks.peers.case import BEST, TITLES
from benchmarks.peers.measured_tables import small, table
from benchmarks.peers.racers import KS, RACERS, RACES, TRIALS

SEARCH, START = "search", "start"


def races_page(records, sides):
    """Lines of the section.

    Args:
        records: {key: record} of the race.
        sides: Names of the sides, in order.
    """
    lines = [
        "## The race",
        "",
        "Both sides train the same network from the same weights, with Adam, a cosine of the",
        "learning rate over the budget, the same augmentation and 16 classes × 4 images, until the",
        "same seconds or steps are spent; building the network and tracing its graph count. Images",
        "were decoded and resized once, for both. Each objective had three trials on each side, on",
        "the last fifth of the training classes, for the same seconds; the table has their steps",
        "in brackets. The best trial of a side, the first of equal ones, runs with three seeds.",
        "Recall@K of the test classes, in percent, mean ± deviation; a row without ± has one seed",
        "so far.",
        "",
        f"“{TITLES[BEST]}” is tfdml by its recipe, which sets all but the images, the network and",
        "its first weights, and was chosen on training classes held out, by more trials than the",
        "search has. All other runs train in float32.",
    ]
    for name, race in RACES.items():
        own = {key.split("/", 2)[2]: r for key, r in records.items() if key.split("/")[1] == name}
        if own:
            lines += ["", f"### {name}: {race.network}, {race.pixels} px", ""]
            lines += start_lines(own.get(START), sides)
            runs = runs_table(own) or "So far only the search was run."
            lines += [runs, "", search_table(own, sides)]
    return lines


def start_lines(record, sides):
    """How much the untrained networks and the augmentation of the sides differ."""
    _, peer = sides
    differences = record and record["differences"].get(peer)
    if not differences:
        return []
    rows, pixels = (differences[name]["absolute"] for name in ("embeddings", "augmented"))
    return [
        f"At the start the embeddings of both sides differ by {small(rows)} at most, and images",
        f"augmented with the same draws by {small(pixels)} of 255.",
        "",
    ]


def runs_table(records):
    """A row for each budget, side and what it ran; empty without runs."""
    groups = {}
    for key, record in records.items():
        if key.count("/") == 2:
            budget, _, side = key.split("/")
            _, own = record["case"]["sides"][side]
            chosen = f"{own['objective']}, {own['trial']}"
            groups.setdefault((budget, side, chosen), []).append(record)
    rows = []
    for (budget, side, chosen), runs in groups.items():
        measured = [run["sides"][side] for run in runs]
        outputs = [each["outputs"] for each in measured if "outputs" in each]
        stops = {each["stopped"] for each in measured if "stopped" in each}
        scores = [deviating([100 * each[f"recall@{k}"] for each in outputs]) for k in KS]
        steps = deviating([each["steps"] for each in outputs], digits=0)
        rows.append([budget, TITLES[side], chosen, steps, *scores, ", ".join(stops) or "–"])
    heads = ["budget", "side", "best objective", "steps", *(f"Recall@{k}" for k in KS), "stopped"]
    return table(heads, rows) if rows else ""


def deviating(values, digits=1):
    if not values:
        return "–"
    mean = f"{statistics.mean(values):,.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):,.{digits}f}" if len(values) > 1 else mean


def search_table(records, sides):
    """Recall@1 and steps of the trials of each objective; the best of a side is bold."""
    measured, budgets = {}, set()
    for key, record in records.items():
        if key.startswith(SEARCH):
            budgets.add(record["case"]["settings"]["budget"]["seconds"])
            _, objective, trial, side = key.split("/")
            measured[objective, trial, side] = record["sides"][side]
    best = dict.fromkeys(sides, 0.0)
    for (*_, side), each in measured.items():
        best[side] = max(best[side], each.get("outputs", {}).get("recall@1", 0.0))

    def cell(objective, trial, side):
        each = measured.get((objective, trial, side), {"stopped": "–"})
        if "stopped" in each:
            return each["stopped"]
        score = each["outputs"]["recall@1"]
        text = f"{100 * score:.1f}"
        text = f"**{text}**" if score == best[side] else text
        return f"{text} ({each['outputs']['steps']:,.0f})"

    columns = [(trial, side) for side in sides for trial in TRIALS]
    rows = [
        [objective, *(cell(objective, *column) for column in columns)]
        for objective in RACERS
        if any(objective == of for of, *_ in measured)
    ]
    heads = [f"{TITLES[side]}, {trial}" for trial, side in columns]
    seconds = " or ".join(f"{each:g}" for each in sorted(budgets))
    return table([f"Recall@1 (steps) in the search, {seconds} s each", *heads], rows)
