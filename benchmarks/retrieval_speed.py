"""Time of retrieval scores of 60,502 × 128, in 11,316 classes, against a flat faiss search.

    python benchmarks/retrieval_speed.py

Prints the seconds of Recall@{1, 10, 100, 1000} alone, of these with MAP@R and R-precision in one
pass, and of all metrics over the whole ranking; their ratio to the search, and the memory that each
adds. The limits are a ratio of 2 for the first, 30 s on 2 cores for the second, and 1 GB for all.
All use the same number of threads; faiss only searches the largest K neighbours.
"""

import argparse

import numpy as np
from peak_memory import timed
from tqdm import tqdm

from tfdml.evaluation import recall_at_k, retrieval_scores

CLASSES = 11_316


def class_ids(rows, rng):
    """(rows,) ids of 11,316 classes, with 2 to 12 rows each if there are 60,502."""
    ids = np.repeat(np.arange(CLASSES), 2)
    more = rng.permutation(np.repeat(np.arange(CLASSES), 10))[: max(0, rows - len(ids))]
    return rng.permutation(np.concatenate([ids, more]))[:rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=60_502)
    parser.add_argument("--k", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    import faiss

    rng = np.random.default_rng(0)
    labels = class_ids(arguments.rows, rng)
    centres = rng.normal(size=(CLASSES, 128))
    rows = (centres[labels] + 1.5 * rng.normal(size=(arguments.rows, 128))).astype("float32")

    def search():
        index = faiss.IndexFlatL2(128)
        index.add(rows)
        index.search(rows, max(arguments.k) + 1)

    together = ("recall", "map@r", "r_precision")
    works = {
        "recall": lambda: recall_at_k(rows, labels, k=arguments.k),
        "recall, map@r, r_precision": lambda: retrieval_scores(
            rows, labels, k=arguments.k, metrics=together
        ),
        "all metrics": lambda: retrieval_scores(rows, labels, k=arguments.k),
        "faiss flat": search,
    }
    measured = {name: [] for name in works}
    for _ in tqdm(range(arguments.rounds), desc="Rounds"):
        for name, work in works.items():
            measured[name].append(timed(work)[1:])
    for name, of in measured.items():
        seconds, memory = zip(*of, strict=True)
        both = zip(seconds, measured["faiss flat"], strict=True)
        ratio = sorted(ours / theirs for ours, (theirs, _) in both)[len(of) // 2]
        print(f"{name:27} {min(seconds):6.1f} s   +{max(memory):.2f} GB   ratio {ratio:5.2f}")
    print(f"Seconds are the least, and ratios the median, of {arguments.rounds} rounds.")


if __name__ == "__main__":
    main()
