"""Time and memory of each loss, forward and backward, on one core, compared with its product.

    python benchmarks/loss_speed.py            # graph
    python benchmarks/loss_speed.py --xla      # compiled by XLA
    python benchmarks/loss_speed.py --check    # exit status 1 if a limit is exceeded

Rows are 128-d, 4 per class. The product is the matrix of dot products that a loss is made from,
with its gradients: of the batch with itself, with the proxies of 1,000 classes, or with a memory of
55,000 rows, to which no gradient flows. Prints the best times of both, measured in turns, their
ratio, and the peak memory of the loss beyond that matrix, with the limits at batch 512 (64 with the
memory). Limits that it does not print: HDC 3 x contrastive at batch 100; clustering 100 ms at batch
128. Each loss runs in its own process, so that one peak does not hide another.
"""

import argparse
import multiprocessing
import os
import pathlib
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.peak_memory import forget_peak, peak_memory

CLASSES, MEMORY = 1000, 55_000
MEGABYTES = 64  # limit beyond the product


@dataclass(frozen=True)
class Case:
    loss: str
    options: dict = field(default_factory=dict)
    limit: float | None = None  # ratio to the product
    dim: int = 128
    batch: int | None = None  # the only one
    largest: int | None = None  # batch


def proxies(name):
    return Case(name, {"num_classes": CLASSES}, 3)


def memory(base):
    return Case("memory", {"base": base, "size": MEMORY}, 2, batch=64)


CASES = {
    "contrastive": Case("contrastive", limit=3),
    "contrastive, batch": Case("contrastive", {"average_over": "batch"}, 3),
    "lifted": Case("lifted", limit=3),
    "binomial": Case("binomial", limit=3),
    "histogram": Case("histogram", limit=3),
    "npair, first": Case("npair", {"pairs": "first"}, 3),
    "npair, all": Case("npair", limit=3),
    "triplet, all": Case("triplet", limit=3),
    "triplet, semihard": Case("triplet", {"mining": "semihard"}),
    "triplet, hard": Case("triplet", {"mining": "hard"}, 3),
    "coupled_clusters": Case("coupled_clusters", limit=3),
    "multi_similarity": Case("multi_similarity", limit=3),
    "supcon": Case("supcon", limit=3),
    "sincere": Case("sincere", limit=3),
    "ntxent": Case("ntxent", limit=3),
    "circle": Case("circle", limit=3),
    "smooth_ap": Case("smooth_ap", limit=12),
    "roadmap": Case("roadmap", limit=12),
    "recall_at_k": Case("recall_at_k", limit=12),
    "norm_softmax": proxies("norm_softmax"),
    "proxy_nca": proxies("proxy_nca"),
    "proxy_anchor": proxies("proxy_anchor"),
    "cosface": proxies("cosface"),
    "arcface": proxies("arcface"),
    "sub_center_arcface": proxies("sub_center_arcface"),
    "soft_triple": proxies("soft_triple"),
    "memory, contrastive": memory("contrastive"),
    "memory, multi_similarity": memory("multi_similarity"),
    "memory, supcon": memory("supcon"),
    "density, contrastive": Case(
        "density", {"base": "contrastive", "initial_density": [0.3] * 1000}
    ),
    "regularized, gor": Case("regularized", {"base": "contrastive", "regularizer": "gor"}),
    "regularized, entropy": Case("regularized", {"base": "contrastive", "regularizer": "entropy"}),
    "contrastive, 384-d": Case("contrastive", dim=384),
    "hard_contrastive": Case("hard_contrastive"),
    "hdc, 3 x 128-d": Case("hdc", dim=384),
    "hdc, cascade": Case("hdc", {"selection": "cascade"}, dim=384),
    "pddm, all pairs": Case("pddm"),
    "pddm, minmax": Case("pddm", {"num_quadruplets": 1, "score_scale": "minmax"}),
    # Its search takes batch³ operations for each class.
    "clustering": Case("clustering", largest=256),
}


def measure(case, batch, xla):
    """Milliseconds of the loss and of its product, and the megabytes of the loss beyond it."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from tfdml.quiet import import_tensorflow

    import_tensorflow()
    import numpy as np
    import tensorflow as tf

    from tfdml import losses

    loss = losses.get(case.loss, **case.options)
    rng = np.random.default_rng(0)
    embeddings = tf.constant(rng.normal(size=(batch, case.dim)), tf.float32)
    labels = tf.constant(np.arange(batch) // 4)
    loss_step, learned = gradient_step(loss, embeddings.shape, xla)
    if case.loss == "memory":
        fill(loss, rng.normal(size=loss.layer.rows.shape), np.arange(MEMORY) % (MEMORY // 4))

    @tf.function(jit_compile=xla)
    def product_step(labels, embeddings):
        with tf.GradientTape() as tape:
            tape.watch(embeddings)
            others, sources = embeddings, [embeddings]
            if "num_classes" in case.options:
                others = tf.reshape(loss.layer.proxies.value, (-1, case.dim))
                sources = [embeddings, *learned]
            elif case.loss == "memory":
                others = loss.layer.rows.value
            product = tf.matmul(embeddings, others, transpose_b=True)
        # The gradients of half the sum of its squares.
        return product[-1], *tape.gradient(product, sources, output_gradients=product)

    steps = []
    for step in (loss_step, product_step):
        step(labels[:8], embeddings[:8])
        steps.append(step.get_concrete_function(labels, embeddings))
    before = forget_peak()
    for _ in range(4):
        steps[0](labels, embeddings)
    added = peak_memory() - before
    seconds = [], []
    until = time.perf_counter() + 2
    while time.perf_counter() < until or len(seconds[0]) < 20:
        for step, times in zip(steps, seconds, strict=True):
            start = time.perf_counter()
            values, *_ = step(labels, embeddings)
            values.numpy()
            times.append(time.perf_counter() - start)
    return *(1e3 * min(times) for times in seconds), (added - 4 * batch * len(values)) / 2**20


def gradient_step(loss, shape, xla=False):
    """A function of labels and embeddings to the loss and its gradients, and what it learns.

    Args:
        loss: `MetricLoss`; its layers are built, unless they are.
        shape: That of the embeddings, (batch, dim).
        xla: Whether XLA compiles it.
    """
    import tensorflow as tf

    learned = []
    for layer in loss.layers:
        if not layer.built:
            layer.build(shape)
        learned += [variable.value for variable in layer.trainable_variables]

    @tf.function(jit_compile=xla)
    def step(labels, embeddings):
        with tf.GradientTape() as tape:
            tape.watch(embeddings)
            value = loss(labels, embeddings, training=True)
        gradients = tape.gradient(value, [embeddings, *learned])
        return value, *map(tf.convert_to_tensor, gradients)

    return step, learned


def fill(loss, rows, labels):
    """Fills the memory of a `CrossBatchMemoryLoss`, which is then in use."""
    loss.layer.rows.assign(rows)
    loss.layer.labels.assign(labels)
    loss.layer.steps.assign(loss.start_step + 1)


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("losses", nargs="*", metavar="LOSS", help="rows to print; default: all")
    parser.add_argument("--xla", action="store_true", help="compile the step with XLA")
    parser.add_argument("--check", action="store_true", help="fail if a limit is exceeded")
    parser.add_argument("--batches", type=int, nargs="+", default=[512])
    arguments = parser.parse_args()
    if unknown := set(arguments.losses) - set(CASES):
        parser.error(f"LOSS must be among {list(CASES)}. Received: {sorted(unknown)}")
    if arguments.check and 512 not in arguments.batches:
        parser.error(
            f"--check needs --batches 512, which has limits. Received: {arguments.batches}"
        )
    context = multiprocessing.get_context("spawn")
    print(
        f"{'loss':25}{'batch':>7}{'ms':>9}{'product':>9}{'ratio':>7}{'limit':>7}{'MB':>7}{'limit':>7}"
    )
    missed = False
    for name in arguments.losses or CASES:
        case = CASES[name]
        for batch in [case.batch] if case.batch else arguments.batches:
            if batch > (case.largest or batch):
                continue
            with ProcessPoolExecutor(1, mp_context=context) as process:
                milliseconds, product, megabytes = process.submit(
                    measure, case, batch, arguments.xla
                ).result()
            ratio = milliseconds / product
            row = f"{name:25}{batch:7}{milliseconds:9.2f}{product:9.2f}{ratio:7.1f}"
            if case.limit and batch in (512, case.batch):
                met = ratio <= case.limit and megabytes <= MEGABYTES
                missed |= not met
                row += f"{case.limit:7}{megabytes:7.0f}{MEGABYTES:7}  {'met' if met else 'missed'}"
            else:
                row += f"{'':7}{megabytes:7.0f}"
            print(row, flush=True)
    sys.exit(arguments.check and missed)


if __name__ == "__main__":
    main()
