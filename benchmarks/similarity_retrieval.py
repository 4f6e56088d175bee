"""Recall@K by the scores of PDDM: 5,924 × 128 exactly, and 60,502 × 128 after reranking.

    python benchmarks/similarity_retrieval.py

Prints the seconds and added memory of each, and the ratio of the exact ranking to scoring all
ordered pairs alone, extrapolated from a part of them. The limits of the exact ranking, of the size
of the test half of CUB-200-2011, are 3 minutes, 1 GB and a ratio of 1, as it scores each pair once.
"""

import argparse

import numpy as np
import tensorflow as tf
from peak_memory import timed
from tqdm import tqdm

from tfdml.evaluation import recall_after_reranking, recall_at_k
from tfdml.layers import PDDM

DIM = 128
PART = 2048  # rows of which all ordered pairs are scored


def unit_rows(count, classes, rng):
    """(count, DIM) float32 rows of unit length around their class centres; (count,) ids."""
    labels = rng.integers(0, classes, count)
    rows = rng.normal(size=(classes, DIM))[labels] + 1.5 * rng.normal(size=(count, DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("float32"), labels


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_924)
    parser.add_argument("--reranked_rows", type=int, default=60_502)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()

    rng = np.random.default_rng(0)
    layer = PDDM(seed=0)
    layer.build((None, DIM))
    # One trace for all sizes of tiles.
    rows_of_any_number = [tf.TensorSpec((None, DIM), tf.float32)] * 2
    matrix = tf.function(layer.matrix, input_signature=rows_of_any_number)
    score = tf.function(layer, input_signature=rows_of_any_number)
    x, labels = unit_rows(arguments.rows, 100, rng)
    many, many_labels = unit_rows(arguments.reranked_rows, 11_316, rng)
    for warmed in (matrix, score):
        warmed(x[:2], x[:2])

    def rank():
        recall_at_k(x, labels, k=(1, 2, 4, 8, 16, 32), similarity=matrix)

    def rerank():
        recall_after_reranking(
            many,
            many_labels,
            k=(1, 10, 100),
            candidates=arguments.candidates,
            similarity=score,
        )

    exact, reranked, ratios = [], [], []
    part = min(PART, arguments.rows)
    for _ in tqdm(range(arguments.rounds), desc="Rounds"):
        exact.append(timed(rank)[1:])  # first, before others leave memory to reuse
        _, seconds, _ = timed(lambda: np.asarray(matrix(x[:part], x[-part:])))
        ratios.append(exact[-1][0] / (seconds * (arguments.rows / part) ** 2))
        reranked.append(timed(rerank)[1:])
    ratio = sorted(ratios)[len(ratios) // 2]
    for name, measured in (("exact ranking", exact), ("reranking", reranked)):
        seconds, memory = zip(*measured, strict=True)
        print(f"{name:15}  {min(seconds):6.1f} s   +{max(memory):.2f} GB")
    print(f"exact/all pairs  {ratio:6.2f}     median of {arguments.rounds} rounds")


if __name__ == "__main__":
    main()
