"""A side of no library: it notes its turns and does what its settings say."""

import time

import numpy as np


def prepare(settings, folder):
    held = []

    def work():
        with open(folder / "turns", "a") as file:
            file.write(settings["name"])
        if settings.get("fails"):
            raise ValueError("of no use")
        held.append(np.ones(settings.get("megabytes", 0) * 2**17))
        time.sleep(settings.get("sleeps", 0.01))
        return {"value": settings.get("value", 1.0), "rows": np.full(3, settings.get("value", 1.0))}

    work.versions = {"dummy": "1.0"}
    return work
