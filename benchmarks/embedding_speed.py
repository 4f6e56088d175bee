"""Speed of `python -m tfdml.scale embed`, compared with the exported model alone.

    python benchmarks/embedding_speed.py saved_models/NAME/1 PHOTOS [--images 1000] [--engine local]

Measures in turns the images per second of the model's `serving_default` on ready batches, encoded
images in memory, and of the embedding of the same images from the list of their files to the
written shards. The limit is a ratio of 0.9 of the second to the first.
"""

import argparse
import functools
import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from timing import seconds_of
from tqdm import tqdm

from tfdml.scale.image_model import ImageModel
from tfdml.scale.listed_images import Listing, list_images
from tfdml.scale.writing import CollectionWriter, embed_missing, embedded
from tfdml.serving.exported import find_version

SHARD_SIZE = 10_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("photos", help="a folder, a pattern or a .parquet file")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--engine", default="local")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    version = find_version(arguments.model)
    model = ImageModel(version)
    signature = tf.saved_model.load(str(version)).signatures["serving_default"]
    images = next(list_images(arguments.photos).shards(arguments.images))
    contents = [pathlib.Path(path).read_bytes() for path in images["path"].to_pylist()]
    firsts = range(0, len(contents), model.batch_size)
    batches = [tf.constant(contents[first : first + model.batch_size]) for first in firsts]

    def ready():
        for batch in batches:
            signature(image_bytes=batch)["embedding"].numpy()

    def whole():
        with tempfile.TemporaryDirectory() as folder:
            listing = Listing(images.to_batches)
            collection = CollectionWriter(folder)
            identity = {"model": "", "dim": model.dim, "shard_size": SHARD_SIZE}
            collection.begin(identity, listing)
            embed_missing(collection, listing, model.batch_size, embed)

    embed = functools.partial(embedded, model)
    if arguments.engine == "ray":
        from tfdml.scale import ray_engine

        embed = functools.partial(ray_engine.embedded, version)
    works = {"ready batches": ready, "embed": whole}
    seconds = {name: [] for name in works}
    for name, work in tqdm(list(works.items()) * (arguments.rounds + 1), "Rounds", delay=2):
        seconds[name].append(seconds_of(work))
    # Without the first round, which prepares the graphs.
    medians = {name: np.median(each[1:], axis=0) for name, each in seconds.items()}
    for name, (wall, cpu) in medians.items():
        rate = f"{len(contents) / wall:,.0f} images/s, {len(contents) / cpu:,.0f} per CPU second"
        print(f"{name}: {rate}")
    ratio = np.median([a[0] / b[0] for a, b in list(zip(*seconds.values(), strict=True))[1:]])
    print(f"{len(contents):,} images in batches of {model.batch_size}: ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
