"""Speed of the features that `--tune head` keeps, compared with `predict` on ready batches.

    python benchmarks/feature_speed.py --data_dir CUB_200_2011 --weights mobilenet_v2.weights.h5

Measures in turns the images per second of the network's `predict` on decoded batches in memory, and
of the same images from their files to the file of features, of which none is there before. The
limit is a ratio of 0.9 of the second to the first. Other options are those of `train.py`; then also
the seconds of the head's training.
"""

import argparse
import pathlib
import tempfile
import time

import numpy as np
import tensorflow as tf
from timing import seconds_of
from tqdm import tqdm

from tfdml import runs
from tfdml.models.embedder import backbone_of
from tfdml.runs.features import Features
from tfdml.runs.recipe_flags import parse
from tfdml.runs.run_images import load_images

DEFAULTS = ["--dataset", "cub200", "--backbone", "mobilenet_v2", "--image_size", "224"]
DEFAULTS += ["--tune", "head", "--loss", "multi_similarity", "--steps", "1000"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=1024, help="to embed; default: 1024")
    parser.add_argument("--rounds", type=int, default=3)
    arguments, options = parser.parse_known_args()
    recipe, _, _ = parse([*DEFAULTS, *options])
    images = load_images(recipe)
    step = max(1, len(images.train.labels) // arguments.images)
    some = images.train.subset(slice(None, None, step))
    recipe, _ = recipe.completed(images.train.num_classes)
    model = runs.build_model(recipe, some, images.dataset)
    features = Features(model.embedder, images.dataset)
    network = backbone_of(model.embedder)
    batches = list(runs.images_to_score(some, images.dataset))
    spec = tf.TensorSpec([None, *images.dataset.image_size])
    ready = tf.data.Dataset.from_generator(batches.__iter__, output_signature=spec)
    ready = ready.apply(tf.data.experimental.assert_cardinality(len(batches)))

    def embed():
        with tempfile.TemporaryDirectory() as folder:
            features._path = pathlib.Path(folder, "features.npz")
            features.embedded(some)

    works = {"ready batches": lambda: network.predict(ready, verbose=0), "features": embed}
    seconds = {name: [] for name in works}
    for name, work in tqdm(list(works.items()) * (arguments.rounds + 1), "Rounds", delay=2):
        seconds[name].append(seconds_of(work))
    # Without the first round, which prepares the graphs.
    for name, (wall, cpu) in {n: np.median(of[1:], axis=0) for n, of in seconds.items()}.items():
        count = len(some.labels)
        print(f"{name}: {count / wall:,.0f} images/s, {count / cpu:,.0f} per CPU second")
    ratio = np.median([a[0] / b[0] for a, b in list(zip(*seconds.values(), strict=True))[1:]])
    print(f"ratio {ratio:.2f}")
    with runs.prepare(recipe, images=images._replace(train=some, test=some)) as run:
        began = time.perf_counter()
        run.train()
        print(f"{recipe.steps:,} steps of the head: {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
