"""Recall@K by an exact search of faiss and NumPy, as scripts of papers do."""

import importlib.metadata

import faiss
import numpy as np


def prepare(settings, folder):
    faiss.omp_set_num_threads(settings["threads"])
    with np.load(folder / settings["inputs"]) as arrays:
        rows, labels = arrays["rows"], arrays["labels"]
    most = max(settings["k"])

    def work():
        index = faiss.IndexFlatL2(rows.shape[1])
        index.add(rows)
        _, found = index.search(rows, most + 1)
        itself = found == np.arange(len(rows))[:, None]
        itself[~itself.any(axis=1), -1] = True  # drops the last where a tie hides the query
        hits = labels[found[~itself].reshape(len(rows), most)] == labels[:, None]
        first = np.where(hits.any(axis=1), hits.argmax(axis=1), most)
        return {f"recall@{k}": np.mean(first < k) for k in settings["k"]}

    work.versions = {"faiss-cpu": importlib.metadata.version("faiss-cpu")}
    return work
