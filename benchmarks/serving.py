"""Speed of an exported model on encoded images, compared with its parts, and time of an export.

    python benchmarks/serving.py PHOTOS [--backbone mobilenet_v2]

PHOTOS has one sub-folder of images per class. Prints the seconds of an export and, for batches of 1
and of 32, the images per second and per CPU second of the exported `serving_default`, of
`embed_images` alone on decoded images, of reading the files alone, and of reading followed by
`embed_images`, all measured in turns. The limits are 30 seconds for the export and a ratio of 0.9
of `serving_default` to its parts.
"""

import argparse
import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from timing import seconds_of
from tqdm import tqdm

from pipelines import Reader
from tfdml.models import BACKBONES, build_embedder
from tfdml.serving import export_model
from tfdml.serving.nearest import images_of
from tfdml.serving.versions import megabytes

PARTS = "reading, then embed_images"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="images, a sub-folder per class")
    parser.add_argument("--backbone", default="mobilenet_v2", choices=sorted(BACKBONES))
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    shape = (arguments.side, arguments.side, 3)
    embedder = build_embedder(arguments.backbone, 128, input_shape=shape)
    files = images_of(arguments.folder)[0]
    contents = [path.read_bytes() for path in files[:: max(1, len(files) // 32)][:32]]
    with tempfile.TemporaryDirectory() as folder:
        version = pathlib.Path(folder) / "1"
        seconds, cpu = seconds_of(lambda: export_model(embedder, version, Reader(shape)))
        print(f"export: {seconds:.1f} s ({cpu:.1f} s of the CPU), {megabytes(version):.1f} MB")
        signatures = tf.saved_model.load(str(version)).signatures
        for rows in (1, len(contents)):
            measure(signatures, contents[:rows], shape, arguments.rounds)


def measure(signatures, contents, shape, rounds):
    """Prints the speeds for a batch of these images, measured in turns."""
    batch = tf.constant(contents)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def read(image_bytes):
        image = tf.TensorSpec(shape, tf.float32)
        return tf.map_fn(Reader(shape), image_bytes, fn_output_signature=image)

    def embed(images):
        return signatures["embed_images"](images=images)["embedding"].numpy()

    images = read(batch)
    works = {
        "serving_default": lambda: signatures["serving_default"](image_bytes=batch)[
            "embedding"
        ].numpy(),
        "embed_images": lambda: embed(images),
        "reading": lambda: read(batch).numpy(),
        PARTS: lambda: embed(read(batch)),
    }
    seconds = {name: [] for name in works}
    for _ in tqdm(range(rounds + 1), f"Batches of {len(contents)}", delay=2):
        for name, work in works.items():
            seconds[name].append(seconds_of(work))
    # Without the first round, which prepares the graphs.
    medians = {name: np.median(each[1:], axis=0) for name, each in seconds.items()}
    print(f"{f'batches of {len(contents)}, the median of {rounds}:':>27}  images/s  /s of the CPU")
    for name, median in medians.items():
        print("{:>27} {:9.1f} {:14.1f}".format(name, *len(contents) / median))
    ratio = medians[PARTS] / medians["serving_default"]
    print("{:>27} {:9.3f} {:14.3f}".format("ratio to the parts", *ratio))


if __name__ == "__main__":
    main()
