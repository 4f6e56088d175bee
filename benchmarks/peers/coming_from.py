"""The table of objectives on the page for those who come from pytorch-metric-learning."""

from benchmarks.peers.case import PML
from benchmarks.peers.measured_tables import table
from benchmarks.peers.objectives import OBJECTIVES
from benchmarks.peers.parts.losses import CHECKED, is_equal, key_of
from tfdml.files import write_text

PAGE = "coming_from/pytorch_metric_learning.md"
BEGIN = "<!-- Table: python benchmarks/peers --docs docs --only losses -->"
END = "<!-- End of the table. -->"


def write_comparison(docs, records):
    """Writes the table if all its objectives were measured; returns the paths written.

    Args:
        docs: `pathlib.Path` of the documentation; it may lack the page.
        records: {key: record} of the objectives.
    """
    page, keys = docs / PAGE, {name: key_of(name, CHECKED, "float64") for name in compared()}
    measured = {key for key, record in records.items() if PML in record["differences"]}
    if not page.exists() or not measured.issuperset(keys.values()):
        return []
    text = page.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    rows = [row_of(OBJECTIVES[name], records[key]) for name, key in keys.items()]
    made = table(["PML", "tfdml", "value and gradient"], rows)
    write_text(page, f"{before}{BEGIN}\n\n{made}\n\n{END}{after}")
    return [page]


def compared():
    """Names of the objectives that PML has."""
    return [name for name, objective in OBJECTIVES.items() if PML in objective.peers]


def row_of(objective, record):
    if is_equal(record, PML):
        remarks = ["equal"]
    else:
        remarks = [f"not equal: {objective.differs.get(PML, 'why is not known')}"]
    remarks += [objective.note] if objective.note else []
    theirs = f"`{objective.peers[PML]}`".replace(" with ", "` with `")
    return [theirs, f"`{objective.tfdml}`", "; ".join(remarks)]
