"""Tables of the page, in Markdown."""

from benchmarks.peers.case import TFDML, TITLES

UNITS = {"ms": 1e3, "s": 1.0}


def table(heads, rows):
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def comparison(what, records, unit, differing):
    """A row for each record and peer: times, their ratio, memory and differences.

    Records of several computers also name theirs: only the ratios compare between such rows.

    Args:
        what: Head of the first column.
        records: {name of the row: record}, in order; None for what was not measured.
        unit: `"ms"` or `"s"`.
        differing: Function of the differences of a side, {name: {"absolute", "relative"}}, to the
            numbers shown, {head: number}.
    """
    rows, names = [], {}
    records = {name: record for name, record in records.items() if record}
    several = len({record["computer"] for record in records.values()}) > 1
    for name, record in records.items():
        ours = record["sides"][TFDML]
        for side, theirs in peers_of(record).items():
            difference = record["differences"].get(side)
            shown = differing(difference) if difference else {}
            names |= dict.fromkeys(shown)
            cells = [time_of(ours, unit), time_of(theirs, unit), ratio(ours, theirs)]
            cells += [memory_of(ours), memory_of(theirs)]
            computer = [record["computer"].split(",")[0]] if several else []
            rows.append(([name, TITLES.get(side, side), *cells], shown, computer))
    heads = [what, "peer", f"tfdml {unit}", f"peer {unit}", "peer / tfdml", "tfdml MB", "peer MB"]
    heads += [f"difference of {name}" for name in names]
    heads += ["computer"] * several
    filled = [
        [*cells, *(small(shown.get(name)) for name in names), *computer]
        for cells, shown, computer in rows
    ]
    return table(heads, filled)


def tally(records):
    """A sentence on how many rows of `comparison` tfdml wins; a side that was stopped loses."""
    rows, counts = 0, {"seconds": 0, "megabytes": 0}
    for record in records:
        ours = record["sides"][TFDML]
        for theirs in peers_of(record).values():
            rows += 1
            for what in counts:
                counts[what] += what in ours and ours[what] < theirs.get(what, float("inf"))
    less = f"less time in {counts['seconds']} and less memory in {counts['megabytes']}"
    return f"Of the {rows} rows, tfdml takes {less}."


def peers_of(record):
    """{side: what was measured} of all sides but tfdml."""
    return {side: measured for side, measured in record["sides"].items() if side != TFDML}


def time_of(measured, unit):
    return measured.get("stopped") or number(measured["seconds"] * UNITS[unit])


def memory_of(measured):
    return "–" if "stopped" in measured else f"{max(measured['megabytes'], 0):,.0f}"


def ratio(ours, theirs):
    if "stopped" in ours or "stopped" in theirs:
        return "–"
    return f"{number(theirs['seconds'] / ours['seconds'])} ×"


def number(value):
    """Three digits, with thousands separated."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def small(value):
    """A difference: its order of magnitude."""
    if value is None:
        return "–"
    return "0" if value == 0 else f"{value:.0e}" if value < 0.01 else f"{value:.2g}"
