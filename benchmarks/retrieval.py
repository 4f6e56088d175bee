"""Recall@{1, 10, 100, 1000} of 60,502 × 128 against a flat faiss search of the same rows.

    python benchmarks/retrieval.py

Prints seconds, their ratio and the memory that the score adds. The limits are a ratio of 2 and
1 GB. Both use the same number of threads; faiss only searches, for as many neighbours as K needs.
"""

import argparse
import threading
import time

import numpy as np
import psutil
from tqdm import tqdm

from tfdml.evaluation import recall_at_k


def timed(function):
    """Seconds of a call, and the peak of the resident memory that it added in GB."""
    process = psutil.Process()
    before, peak, done = process.memory_info().rss, 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    function()
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    return seconds, max(peak - before, 0) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_502)
    parser.add_argument("--k", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    import faiss

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 11_316, arguments.rows)
    centres = rng.normal(size=(11_316, 128))
    rows = (centres[labels] + 1.5 * rng.normal(size=(arguments.rows, 128))).astype("float32")

    def search():
        index = faiss.IndexFlatL2(128)
        index.add(rows)
        index.search(rows, max(arguments.k) + 1)

    ours, theirs = [], []
    for _ in tqdm(range(arguments.rounds), desc="Rounds"):
        ours.append(timed(lambda: recall_at_k(rows, labels, k=arguments.k)))
        theirs.append(timed(search))
    ratios = sorted(a[0] / b[0] for a, b in zip(ours, theirs, strict=True))
    print(f"recall_at_k  {min(ours)[0]:6.1f} s   +{max(memory for _, memory in ours):.2f} GB")
    print(f"faiss flat   {min(theirs)[0]:6.1f} s   +{max(memory for _, memory in theirs):.2f} GB")
    print(f"ratio        {ratios[len(ratios) // 2]:6.2f}     median of {arguments.rounds} rounds")


if __name__ == "__main__":
    main()
