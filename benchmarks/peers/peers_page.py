"""The page of all results."""

import textwrap

COMMANDS = (
    "python benchmarks/peers --docs docs --only losses evaluation samplers steps",
    "python evaluate.py saved_models/cub_frozen --split all --embeddings cub_all.npz",
    "python benchmarks/peers --docs docs --only heads --features cub_all.npz",
    "python benchmarks/peers --docs docs --only race --data_dir DATA \\",
    "    --objectives NT-Xent multi-similarity circle",
)


def page_of(results, parts):
    """The page, of the parts that have results.

    Args:
        results: `Results`.
        parts: Modules of the parts, in the order of the page.
    """
    measured = [(part, results.of(part.PART)) for part in parts]
    lines = [
        "# tfdml and its peers",
        "",
        "<!-- not run: hours, and an environment of other libraries -->",
        "",
        "Written by the commands below, which measure the sides of a row in turns, on the same",
        "inputs and on one computer, each side in a process of its own. The race, so far of three",
        "`--objectives`, needs the images and weights of `--data_dir`. Where the rows of a table",
        "were measured on several computers, only their ratios can be compared. A side that needs",
        "more than 8 GB or, except in the race, 120 s in one call, is stopped, and its cell names",
        "the limit. `python benchmarks/peers --help` says more.",
        "",
        "```bash",
        *COMMANDS,
        "```",
        "",
        conditions(results.records.values()),
    ]
    for part, records in measured:
        if records:
            lines += ["", *part.page(records)]
    return "\n".join(lines).rstrip() + "\n"


def conditions(records):
    """The computers, the libraries and how busy the computers were."""
    versions = {}
    for record in records:
        for side in record["sides"].values():
            versions |= side.get("versions", {})
    libraries = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    load = max((record["load"] for record in records), default=0)
    computers = " or ".join(dict.fromkeys(filter(None, (r.get("computer") for r in records))))
    text = "; ".join(filter(None, [computers, libraries]))
    return textwrap.fill(f"{text}. The load before a case was {load:.1f} at most.", 100)
