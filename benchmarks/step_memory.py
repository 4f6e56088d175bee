"""Peak memory and time of training steps: micro batches, recomputed blocks, sampled classes.

    python benchmarks/step_memory.py                      # all
    python benchmarks/step_memory.py --batches 64 256     # in micro batches, of fewer images

In micro batches: MobileNetV2 at 96 pixels, at once and 64 images at a time. Of blocks: a DINOv2 of
8, 192 wide, on 32 images of 224 pixels, with what is in them kept or computed again; needs
KerasHub. With sampled classes: 64 rows of 128-d, the proxies of a million classes, and CosFace
over all or a hundredth of them in each step. Prints seconds and CPU seconds per step, the mean of
three after the first, and the memory that building and training add. Each row has a process of its
own.
"""

import argparse
import multiprocessing
import pathlib
import sys
from concurrent.futures import ProcessPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.peak_memory import peak_memory
from benchmarks.timing import seconds_of

STEPS, PIXELS, MICRO_BATCH = 3, 96, 64
BLOCKS, AGAIN = "8 blocks", "8 blocks, computed again"
CLASSES, ROWS, DIM, RATE = 1_000_000, 64, 128, 0.01


def measure(build, *options, again=False):
    """Seconds and CPU seconds per step, and the gigabytes that the model and its steps add."""
    from tfdml.quiet import import_tensorflow

    import_tensorflow()
    import tfdml

    before = peak_memory()
    model, *batch = build(*options)

    def train():
        for _ in range(STEPS):
            model.train_on_batch(*batch)

    blocks = tfdml.models.recomputable_blocks(model.embedder) if again else []
    with tfdml.models.recomputing(blocks):
        model.train_on_batch(*batch)
        wall, cpu = seconds_of(train)
    return wall / STEPS, cpu / STEPS, (peak_memory() - before) / 2**30


def in_micro_batches(images, micro_batch):
    import numpy as np

    import tfdml

    shape = (PIXELS, PIXELS, 3)
    embedder = tfdml.models.build_embedder("mobilenet_v2", DIM, input_shape=shape)
    model = tfdml.EmbeddingModel(embedder, micro_batch=micro_batch)
    model.compile(tfdml.optimizers.Adam(1e-4), "multi_similarity")
    pixels = np.random.default_rng(0).uniform(0, 255, (images, *shape)).astype("float32")
    return model, pixels, np.arange(images) // 4


def dinov2(shape):
    import keras
    import keras_hub

    sizes = {"num_layers": 8, "hidden_dim": 192, "num_heads": 3, "intermediate_dim": 768}
    options = {"image_shape": shape, "position_embedding_shape": shape, **sizes}
    network = keras_hub.models.DINOV2Backbone(patch_size=16, **options)
    return keras.Model(network.inputs, network.output[:, 0])


def in_blocks():
    import numpy as np

    import tfdml

    shape = (224, 224, 3)
    embedder = tfdml.models.build_embedder(f"{__name__}:dinov2", DIM, input_shape=shape)
    model = tfdml.EmbeddingModel(embedder)
    model.compile(tfdml.optimizers.Adam(1e-4), "multi_similarity")
    pixels = np.random.default_rng(0).uniform(0, 255, (32, *shape)).astype("float32")
    return model, pixels, np.arange(32) // 4


def with_classes(rate):
    import keras
    import numpy as np

    import tfdml

    loss = tfdml.losses.get("cosface", num_classes=CLASSES)
    if rate < 1:
        loss = tfdml.losses.get("sampled_classes", base=loss, rate=rate)
    embedder = keras.Sequential([keras.Input((DIM,)), keras.layers.Dense(DIM)])
    model = tfdml.EmbeddingModel(embedder)
    model.compile(tfdml.optimizers.Adam(1e-4), loss)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(ROWS, DIM)).astype("float32")
    return model, rows, rng.integers(0, CLASSES, ROWS)


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--batches", type=int, nargs="*", default=[64, 256, 1024])
    arguments = parser.parse_args()
    rows = {
        f"{batch:,} images, {f'{size} at a time' if size else 'at once'}": (
            *(in_micro_batches, batch, size),
        )
        for batch in arguments.batches
        for size in (None, MICRO_BATCH)
    }
    rows |= {BLOCKS: (in_blocks,), AGAIN: (in_blocks,)}
    rows |= {
        f"{CLASSES:,} classes, {rate:.0%} in a step": (with_classes, rate) for rate in (1, RATE)
    }
    context = multiprocessing.get_context("spawn")
    print(f"{'step':40}{'s':>8}{'CPU s':>8}{'GB':>8}")
    for name, row in rows.items():
        with ProcessPoolExecutor(1, mp_context=context) as process:
            wall, cpu, gigabytes = process.submit(measure, *row, again=name == AGAIN).result()
        print(f"{name:40}{wall:8.2f}{cpu:8.2f}{gigabytes:8.2f}", flush=True)


if __name__ == "__main__":
    main()
