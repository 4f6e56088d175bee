"""Time of a training step on 1, 2 and 4 processes, the network's share, and how both grow.

    python benchmarks/workers.py
    python benchmarks/workers.py --processes 1 2 --steps 5
    python benchmarks/workers.py --processes --gpus 8 64   # the model alone

Each process is a worker of `MultiWorkerMirroredStrategy` on this machine with as many images of
noise, so that the batch grows with the processes, which share the cores. The network's time is that
of the same collective operations alone, in turn: the gather of the embeddings, its gradient, and
the sum of the weights' gradients. The model counts bytes and operations of a GPU; its speeds are
options, not measurements.
"""

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import time

SIDE, FLOAT = 96, 4
PRODUCTS = 3  # matrix products of a loss over pairs: forward, and for both factors of the gradient


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--images", type=int, default=16, help="images of each process")
    parser.add_argument("--dim", type=int, default=128, help="numbers of an embedding")
    parser.add_argument("--steps", type=int, default=10, help="steps to time")
    parser.add_argument("--gpus", type=int, nargs="*", default=[1, 8, 16, 32, 64])
    parser.add_argument("--batches", type=int, nargs="*", default=[1024, 8192, 65536])
    parser.add_argument("--parameters", type=float, default=25.6e6, help="weights: ResNet-50")
    parser.add_argument("--images_per_second", type=float, default=1000, help="of a GPU, trained")
    parser.add_argument("--teraflops", type=float, default=50, help="of a GPU in the loss")
    parser.add_argument("--gigabytes", type=float, default=10, help="of the network, a second")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        measure(arguments)
        return
    if arguments.processes:
        print(f"{'processes':>9}{'batch':>8}{'s/step':>9}{'network':>9}{'share':>7}")
    for count in arguments.processes:
        step, network = time_of(count)
        share = f"{network / step:7.0%}" if count > 1 else f"{'':7}"
        print(f"{count:9}{count * arguments.images:8}{step:9.3f}{network:9.3f}{share}", flush=True)
    print_model(arguments)


def time_of(count):
    """Seconds of a step and of its collective operations, in the first of so many processes."""
    addresses, started = free_addresses(count), []
    for index in range(count):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        environment = {**os.environ, "TF_CONFIG": config, "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, *sys.argv, "--worker", str(index)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "encoding": "utf-8"}
        started.append(subprocess.Popen(command, env=environment, **pipes))
    outputs = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit("benchmarks/workers.py: a process failed; start it with --worker 0")
    return json.loads(outputs[0].splitlines()[-1])


def free_addresses(count):
    """As many addresses HOST:PORT of this machine alone, which nothing listens on."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def measure(arguments):
    """Prints the seconds of a step and of its collective operations, from within a worker."""
    from tfdml.runs.devices import find_devices

    devices = find_devices().start()
    import keras
    import numpy as np
    import tensorflow as tf

    import tfdml
    from tfdml.models.replicas import fit_replicas

    strategy, images = devices.strategy, arguments.images
    keras.utils.set_random_seed(0)
    embedder = tfdml.models.build_embedder(
        "mobilenet_v2", arguments.dim, input_shape=(SIDE, SIDE, 3)
    )
    model = tfdml.EmbeddingModel(embedder)
    model.compile(optimizer=tfdml.optimizers.SGD(1e-3), loss=tfdml.losses.get("lifted"))
    noise = np.random.default_rng(devices.index).uniform(0, 255, (images, SIDE, SIDE, 3))
    labels = np.arange(images) // 4
    batches = tf.data.Dataset.from_tensors((noise.astype("float32"), labels)).repeat()
    began = []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: began.append(time.perf_counter()),
        on_train_end=lambda logs: began.append(time.perf_counter()),
    )
    steps = {"steps_per_epoch": 2 + arguments.steps, "epochs": 1}
    fit_replicas(model, strategy, batches, **steps, callbacks=[note])
    step = np.median(np.diff(began[2:-1]))

    shapes = [variable.shape for variable in model.trainable_variables]

    @tf.function
    def collective():
        def communicate():
            context = tf.distribute.get_replica_context()
            with tf.device(strategy.extended.worker_devices[0]):
                rows, ids = tf.ones((images, arguments.dim)), tf.range(images, dtype=tf.int64)
                gradients = [tf.ones(shape) for shape in shapes]
            rows, ids = context.all_gather(rows, axis=0), context.all_gather(ids, axis=0)
            sums = context.all_reduce("sum", rows), context.all_reduce("sum", gradients)
            return tf.add_n([tf.reduce_sum(each) for each in tf.nest.flatten(sums)])

        return strategy.run(communicate)

    collective()
    times = []
    for _ in range(arguments.steps):
        start = time.perf_counter()
        strategy.experimental_local_results(collective())[0].numpy()
        times.append(time.perf_counter() - start)
    print(json.dumps([step, np.median(times)]))


def print_model(arguments):
    """Prints what a step on GPUs costs: embeddings, loss, gather and gradients."""
    print(
        f"\nModel: {arguments.parameters / 1e6:.1f} M weights, {arguments.dim}-d, "
        f"{arguments.images_per_second:,.0f} images/s and {arguments.teraflops:g} TFLOP/s a GPU, "
        f"network {arguments.gigabytes:g} GB/s\n"
        f"{'GPUs':>5}{'batch':>8}{'network MB':>12}{'embed ms':>10}{'loss ms':>9}"
        f"{'network ms':>12}{'efficiency':>12}{'matrix GB':>11}"
    )
    for batch in arguments.batches:
        for gpus in arguments.gpus:
            print(modelled(arguments, batch, gpus))


def modelled(arguments, batch, gpus):
    """A line of the table: a gather sends its rows once, a sum by a ring all numbers twice."""
    beyond, rows = (gpus - 1) / gpus, batch * arguments.dim * FLOAT
    sent = beyond * (rows + 8 * batch + 2 * rows + 2 * FLOAT * arguments.parameters)
    embed = batch / gpus / arguments.images_per_second
    loss = PRODUCTS * 2 * batch**2 * arguments.dim / arguments.teraflops / 1e12
    network = sent / arguments.gigabytes / 1e9
    efficiency = (batch / arguments.images_per_second + loss) / gpus / (embed + loss + network)
    return (
        f"{gpus:5}{batch:8,}{sent / 1e6:12.1f}{1e3 * embed:10.1f}{1e3 * loss:9.2f}"
        f"{1e3 * network:12.1f}{efficiency:12.0%}{FLOAT * batch**2 / 1e9:11.2f}"
    )


if __name__ == "__main__":
    main()
