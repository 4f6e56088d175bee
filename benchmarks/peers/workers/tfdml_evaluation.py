"""Scores of retrieval by tfdml."""

import importlib.metadata

import numpy as np

from tfdml.evaluation import retrieval_scores


def prepare(settings, folder):
    with np.load(folder / settings["inputs"]) as arrays:
        rows, labels = arrays["rows"], arrays["labels"]

    def work():
        return retrieval_scores(rows, labels, k=settings["k"], metrics=settings["metrics"])

    work.versions = {"numpy": importlib.metadata.version("numpy")}
    return work
