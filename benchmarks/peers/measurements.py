"""The measurements, in one JSON file that is replaced after every case."""

import json

from benchmarks.peers.process import FAILED
from tfdml.checks import check
from tfdml.files import write_text


class Results:
    """Records by the key of their case.

    Args:
        path: `pathlib.Path` of the file; it need not exist.

    Raises:
        ValueError: If it is not a file of results.
    """

    def __init__(self, path):
        self.path, self.records = path, {}
        if path.exists():
            try:
                self.records = dict(json.loads(path.read_text("utf-8")))
                whole = all({"case", "sides"} <= {*record} for record in self.records.values())
            except (ValueError, TypeError):
                whole = False
            check(whole, "the file of results must be one that this program wrote", path=str(path))

    def has(self, case):
        """Whether this very case was measured: with other settings it is measured again."""
        record = self.records.get(case.key)
        return record is not None and record["case"] == case.description()

    def add(self, case, record):
        self.records[case.key] = record
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, json.dumps(self.records, indent=1) + "\n")

    def of(self, part):
        """{key: record} of the cases of a part, in the order in which they were measured."""
        chosen = self.records.items()
        return {key: record for key, record in chosen if key.split("/")[0] == part}

    def drop_failures(self):
        """Forgets cases of which a side failed, not by a limit, so that they are measured again."""
        for key, record in list(self.records.items()):
            reasons = (side.get("stopped", "") for side in record["sides"].values())
            if any(reason.startswith(FAILED) for reason in reasons):
                del self.records[key]
