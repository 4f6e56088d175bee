"""Time and memory of each loss, forward and backward, on one core.

    python benchmarks/losses.py            # graph
    python benchmarks/losses.py --xla      # compiled by XLA

Prints per loss the best of 20 runs in milliseconds and as a multiple of lifted, and the peak memory
that the runs add, at several batch sizes of 128-d embeddings with 4 rows per class. Limits: at
batch 512, 15 ms and 64 MB for the losses of one level without a layer; HDC 3 x contrastive at batch
100; PDDM without a matrix of scores ("local", "raw") 3 x lifted at batch 64, and 2.2 x more for
each doubling from 128 on; clustering 100 ms at batch 128. Each measurement runs in its own process,
so that one peak does not hide another.
"""

import argparse
import multiprocessing
import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor

CLASSES = 1000
CASES = {
    "lifted": ("lifted", {}),
    "binomial": ("binomial", {}),
    "clustering": ("clustering", {}),
    "contrastive": ("contrastive", {}),
    "contrastive, batch": ("contrastive", {"average_over": "batch"}),
    "density, contrastive": ("density", {"initial_density": [0.3] * 1000}),
    "coupled_clusters": ("coupled_clusters", {}),
    "histogram": ("histogram", {}),
    "regularized, gor": ("regularized", {"base": "contrastive", "regularizer": "gor"}),
    "regularized, entropy": ("regularized", {"base": "contrastive", "regularizer": "entropy"}),
    "contrastive, 384-d": ("contrastive", {}, 384),
    "hard_contrastive": ("hard_contrastive", {}),
    "hdc, 3 x 128-d": ("hdc", {}, 384),
    "hdc, cascade": ("hdc", {"selection": "cascade"}, 384),
    "npair, first": ("npair", {"pairs": "first"}),
    "npair, all": ("npair", {}),
    "triplet, all": ("triplet", {}),
    "triplet, semihard": ("triplet", {"mining": "semihard"}),
    "triplet, hard": ("triplet", {"mining": "hard"}),
    "pddm, all pairs": ("pddm", {}),
    "pddm, local": ("pddm", {"num_quadruplets": 1, "score_scale": "local"}),
    "pddm, raw": ("pddm", {"num_quadruplets": 1, "score_scale": None}),
    "pddm, minmax": ("pddm", {"num_quadruplets": 1, "score_scale": "minmax"}),
    **{name: (name, {}) for name in ("multi_similarity", "supcon", "sincere", "ntxent", "circle")},
    **{name: (name, {}) for name in ("smooth_ap", "roadmap", "recall_at_k")},
    **{
        f"{name}, {CLASSES} classes": (name, {"num_classes": CLASSES})
        for name in ("norm_softmax", "arcface", "sub_center_arcface", "soft_triple", "proxy_anchor")
    },
    "memory of 8,192, contrastive": ("memory", {"base": "contrastive", "size": 8192}),
}
LARGEST = {"clustering": 256}  # its search takes batch³ operations for each class


def measure(case, batch, xla):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import numpy as np
    import psutil
    import tensorflow as tf

    from tfdml import losses

    name, options, *width = CASES[case]
    loss = losses.get(name, **options)
    shape = (batch, *(width or [128]))
    embeddings = tf.constant(np.random.default_rng(0).normal(size=shape), tf.float32)
    labels = tf.constant(np.arange(batch) // 4)

    learned = []
    for layer in loss.layers:
        layer.build(embeddings.shape)
        learned += layer.trainable_variables

    @tf.function(jit_compile=xla)
    def step(labels, embeddings):
        with tf.GradientTape() as tape:
            tape.watch(embeddings)
            value = loss(labels, embeddings, training=True)
        gradients = tape.gradient(value, [embeddings, *learned])
        return value, *map(tf.convert_to_tensor, gradients)

    step(labels[:8], embeddings[:8])
    concrete = step.get_concrete_function(labels, embeddings)
    process = psutil.Process()
    before, peak, done = process.memory_info().rss, 0, threading.Event()

    def watch():
        nonlocal peak
        while not done.wait(0.0002):
            peak = max(peak, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    concrete(labels, embeddings)
    for _ in range(3):
        concrete(labels, embeddings)
    done.set()
    watcher.join()
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        concrete(labels, embeddings)[0].numpy()
        seconds.append(time.perf_counter() - start)
    return 1e3 * min(seconds), max(peak - before, 0) / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--xla", action="store_true", help="compile the step with XLA")
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 100, 128, 256, 512, 1024])
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    print(f"{'loss':20}" + "".join(f"{f'batch {b}':>27}" for b in arguments.batches))
    lifted = {}
    for case in CASES:
        row = f"{case:20}"
        for batch in arguments.batches:
            if batch > LARGEST.get(case, batch):
                continue
            with ProcessPoolExecutor(1, mp_context=context) as process:
                milliseconds, megabytes = process.submit(
                    measure, case, batch, arguments.xla
                ).result()
            multiple = milliseconds / lifted.setdefault(batch, milliseconds)
            row += f"{milliseconds:8.2f} ms {multiple:5.1f} x {megabytes:4.0f} MB"
        print(row, flush=True)


if __name__ == "__main__":
    main()
