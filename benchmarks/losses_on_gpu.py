"""Objectives on a GPU: tfdml on Keras' PyTorch and JAX backends, and pytorch-metric-learning.

    python benchmarks/losses_on_gpu.py                         # measures, then writes the page
    python benchmarks/losses_on_gpu.py --docs docs --write     # the page, of what was measured

Forward and backward of the objectives of `benchmarks/peers`, with its inputs. Needs Keras,
pytorch-metric-learning, and PyTorch and JAX with CUDA. Writes results/gpu.json and results/gpu.md
in --docs; rows that are there and are not measured stay if GPU and versions are the same.
"""

import argparse
import dataclasses
import gc
import importlib.metadata
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.peers.arguments import RANGES
from benchmarks.peers.case import PML
from benchmarks.peers.measured_tables import memory_of, ratio, small, table, time_of
from benchmarks.peers.objectives import OBJECTIVES
from benchmarks.peers.parts.losses import inputs_of
from benchmarks.peers.turns import difference
from benchmarks.peers.workers.tfdml_losses import loss_of

PEER, ON_TORCH, ON_JAX = "pytorch-metric-learning", "tfdml, PyTorch", "tfdml, JAX"
OF_PML = [name for name, each in OBJECTIVES.items() if PML in each.peers]
BATCHES = 512, 2048, 4000
FULL = {"stopped": "out of memory"}
SECONDS, CALLS = 0.2, 5  # of a measurement, at least both
HEADS = [
    *("objective", "PML ms", "PyTorch ms", "JAX ms", "PML / PyTorch", "PML / JAX"),
    *("PML MB", "PyTorch MB", "JAX MB", "difference of PML", "difference of JAX"),
]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options = {"nargs": "+", "choices": OF_PML, "default": OF_PML, "metavar": "NAME"}
    parser.add_argument("--objectives", help=f"of {', '.join(OF_PML)}; default: all", **options)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    folder = pathlib.Path("runs/gpu")
    parser.add_argument("--docs", type=pathlib.Path, default=folder, help=f"default: {folder}")
    parser.add_argument("--write", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)  # of a child
    given = parser.parse_args()
    least, most = RANGES["batches"]
    if not all(least <= batch <= most for batch in given.batches):
        parser.error(f"--batches must be from {least} to {most:,}. Received: {given.batches}")
    if given.folder:
        return measure(given.objectives, given.batches, given.folder)
    kept = given.docs / "results" / "gpu.json"
    if not given.write:
        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            results = measured_by_both(given.objectives, given.batches)
        except RuntimeError as error:
            parser.error(str(error))
        if kept.is_file():
            results = joined(json.loads(kept.read_text("utf-8")), results)
        kept.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    elif not kept.is_file():
        parser.error(f"there is no {kept}: measure first")
    page = kept.with_suffix(".md")
    page.write_text(page_of(json.loads(kept.read_text("utf-8"))), encoding="utf-8")
    print(f"Written: {page}")


def measured_by_both(names, batches):
    """The results of the frameworks, each in a process of its own."""
    results = {"versions": {}, "rows": {}}
    with tempfile.TemporaryDirectory() as folder:
        for backend in ("torch", "jax"):
            command = [sys.executable, __file__, "--folder", folder, "--objectives", *names]
            environment = {**os.environ, "KERAS_BACKEND": backend}
            environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
            command += ["--batches", *map(str, batches)]
            if subprocess.run(command, env=environment).returncode:
                raise RuntimeError(f"the measurement on {backend} failed, as shown above")
            measured = json.loads((pathlib.Path(folder) / f"{backend}.json").read_text("utf-8"))
            results["gpu"] = measured["gpu"]
            results["versions"] |= measured["versions"]
            for key, sides in measured["rows"].items():
                results["rows"].setdefault(key, {}).update(sides)
    return results


def joined(kept, results):
    """The results, with the kept rows that they lack if GPU and versions are the same."""
    if any(kept[each] != results[each] for each in ("gpu", "versions")):
        return results

    def place(key):
        name, batch = key.split("/")
        return OF_PML.index(name), int(batch)

    rows = kept["rows"] | results["rows"]
    return results | {"rows": {key: rows[key] for key in sorted(rows, key=place)}}


def measure(names, batches, folder):
    """Writes what the sides of Keras' backend take, and how far they are from tfdml on PyTorch.

    A side that is out of memory is not tried with a larger batch.
    """
    import keras

    backend = keras.backend.backend()
    sides = {"torch": on_torch, "jax": on_jax}[backend]
    rows, described, full = {}, described_by(backend), set()
    for name, batch in itertools.product(names, sorted(batches)):
        objective = OBJECTIVES[name]
        memory = objective.memory if batch <= objective.memory else 0
        with np.load(folder / inputs_of(folder, batch, objective.centers, memory)) as file:
            arrays = dict(file)
        measured = rows[f"{name}/{batch}"] = {}
        for side, prepare in sides(objective, arrays):
            if (name, side) in full:
                measured[side] = FULL
                continue
            try:
                measured[side], outputs = times_of(*prepare())
            except Exception as error:
                if "out of memory" not in str(error).lower():
                    raise
                measured[side] = FULL
                full.add((name, side))
                continue
            reference = folder / f"{name}_{batch}.npz"
            if side == ON_TORCH:
                np.savez(reference, **outputs)
            if reference.exists():
                measured[side]["differences"] = differences(outputs, reference)
        (folder / f"{backend}.json").write_text(json.dumps({**described, "rows": rows}), "utf-8")


def differences(outputs, reference):
    """Relative differences of outputs from those in the file `reference`."""
    with np.load(reference) as first:
        return {name: difference(first[name], outputs[name])["relative"] for name in outputs}


def described_by(backend):
    """The GPU and the libraries of a backend."""
    import torch

    versions = {name: importlib.metadata.version(name) for name in ("keras", backend)}
    if backend == "torch":
        versions[PEER] = importlib.metadata.version(PEER)
    return {"gpu": torch.cuda.get_device_name(), "versions": versions}


def times_of(step, megabytes):
    """Seconds and megabytes of a step, which waits for the GPU, and what it returned.

    Args:
        step: Function without arguments to {name: array}.
        megabytes: Function without arguments to the memory that a step adds.
    """
    outputs = {name: as_numpy(value) for name, value in step().items()}
    added, seconds = megabytes(), []
    while sum(seconds) < SECONDS or len(seconds) < CALLS:
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return {"seconds": statistics.median(seconds), "megabytes": added}, outputs


def as_numpy(value):
    import keras

    return keras.ops.convert_to_numpy(value)


def on_torch(objective, arrays):
    """(side, function to its step and memory) of pytorch-metric-learning and of tfdml."""
    import torch

    def peer():
        from benchmarks.peers.workers.pml_losses import objective_of

        inputs, own = tensors(), objective.peers[PML]
        loss, value_of = objective_of(dataclasses.asdict(own), inputs)
        return step_of(value_of, [*loss.parameters()], inputs)

    def ours():
        inputs, loss = tensors(), loss_of(dataclasses.asdict(objective.tfdml), arrays)
        learned = [v.value for layer in loss.layers for v in layer.trainable_variables]
        return step_of(lambda rows, labels: loss(labels, rows, training=True), learned, inputs)

    def tensors():
        return {name: torch.from_numpy(array).to("cuda") for name, array in arrays.items()}

    def step_of(value_of, parameters, inputs):
        rows = inputs["rows"].requires_grad_()

        def forget_gradients():
            for each in (rows, *parameters):
                each.grad = None

        def step():
            forget_gradients()
            value = value_of(rows, inputs["labels"])
            value.backward()
            torch.cuda.synchronize()
            return {"value": value.detach(), "gradient": rows.grad}

        def megabytes():
            forget_gradients()
            gc.collect()  # what reference cycles hold of the step before
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            step()
            return (torch.cuda.max_memory_allocated() - before) / 2**20

        return step, megabytes

    return (ON_TORCH, ours), (PEER, peer)


def on_jax(objective, arrays):
    """(side, function to its step and memory) of tfdml, compiled."""
    import jax
    import keras

    jax.devices("gpu")  # fails without one, in place of the CPU
    jax.config.update("jax_default_matmul_precision", "highest")  # not TF32, as on PyTorch

    def ours():
        loss = loss_of(dataclasses.asdict(objective.tfdml), arrays)
        learned = [v for layer in loss.layers for v in layer.trainable_variables]
        rows, labels = jax.device_put(arrays["rows"]), jax.device_put(arrays["labels"])
        values = [variable.value for variable in learned]

        def by_learned(rows, values, labels):
            with keras.StatelessScope(list(zip(learned, values, strict=True))):
                return loss(labels, rows, training=True)

        compiled = jax.jit(jax.value_and_grad(by_learned, argnums=(0, 1)))
        compiled = compiled.lower(rows, values, labels).compile()

        def step():
            value, (gradient, _) = jax.block_until_ready(compiled(rows, values, labels))
            return {"value": value, "gradient": gradient}

        analysis = compiled.memory_analysis()
        used = analysis.temp_size_in_bytes + analysis.output_size_in_bytes
        return step, lambda: used / 2**20

    return ((ON_JAX, ours),)


def page_of(results):
    """The page of the measurements."""
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    lines = [
        "# Objectives on a GPU",
        "",
        "<!-- not run: needs a GPU, PyTorch and JAX with CUDA, and pytorch-metric-learning -->",
        "",
        "```bash",
        "python benchmarks/losses_on_gpu.py --docs docs",
        "```",
        "",
        "Forward and backward of one batch of random 128-d rows, 4 per class, in float32: tfdml on",
        "Keras' backends PyTorch, which is eager, and JAX, which compiles; and eager",
        "pytorch-metric-learning (PML). MB are what a step adds at most to the memory of the GPU.",
        "The differences are the largest of the gradient from that of tfdml on PyTorch, relative",
        "to its size: rounding, but where it decides which example is the hardest, or on which",
        "side of a margin or of a bin a distance is. JAX is set to multiply in float32 too, not in",
        "TF32, its default on this GPU. Why PML differs: [peers](peers.md#objectives).",
        "The three sides of a row were measured in one run, not all rows in the same: compare",
        "times within a row. Those of eager PyTorch are mostly of the CPU that starts its kernels.",
        "",
        summary(results["rows"].values()),
        "",
        f"{results['gpu']}; {versions}.",
    ]
    for batch in sorted({int(key.split("/")[1]) for key in results["rows"]}):
        rows = [
            [name, *cells(sides)]
            for key, sides in results["rows"].items()
            for name, size in [key.split("/")]
            if int(size) == batch
        ]
        lines += ["", f"## Batch {batch:,}", "", table(HEADS, rows)]
    return "\n".join(lines) + "\n"


def summary(rows):
    """Sentence of the rows in which tfdml is faster than the peer, on each backend."""
    faster = []
    for side in (ON_JAX, ON_TORCH):
        both = [each for each in rows if not any("stopped" in each[name] for name in (PEER, side))]
        ratios = [each[PEER]["seconds"] / each[side]["seconds"] for each in both]
        phrase = f"{sum(each > 1 for each in ratios)} of {len(both)} rows"
        if ratios:
            phrase += f" ({min(ratios):.2g} to {max(ratios):.0f} times as fast)"
        faster.append(phrase)
    return (
        f"Where both fit into the memory of the GPU, tfdml is faster than PML in {faster[0]}\n"
        f"compiled by JAX, and in {faster[1]} on eager PyTorch."
    )


def cells(sides):
    """Times, their ratios to the peer's, memory and differences of one objective."""
    peer, ours = sides[PEER], [sides[ON_TORCH], sides[ON_JAX]]
    milliseconds = [time_of(side, "ms") for side in (peer, *ours)]
    ratios = [ratio(side, peer) for side in ours]
    differences = [side.get("differences", {}).get("gradient") for side in (peer, ours[1])]
    return [*milliseconds, *ratios, *map(memory_of, (peer, *ours)), *map(small, differences)]


if __name__ == "__main__":
    main()
