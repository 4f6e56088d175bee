"""Cost and recall of the early exits of a trained run, to choose a level by.

    python benchmarks/early_exit.py runs/cars_hdc

Prints, for the first level, the first two and so on, the size of the SavedModel, its throughput in
images/s (batches of 32 decoded images), and its Recall@1 on the test classes, or on those that the
run held out.
"""

import argparse
import pathlib
import tempfile
import time

import numpy as np
import tensorflow as tf

from pipelines.loading import named
from tfdml.command_line import one_sentence
from tfdml.evaluation import apart, recall_at_k
from tfdml.models import number_of_levels
from tfdml.runs.recipe_flags import recipe_of
from tfdml.runs.run_batches import images_to_score
from tfdml.runs.run_export import load_run, serve_run, write_next
from tfdml.runs.run_images import load_images
from tfdml.serving.exported import find_version
from tfdml.serving.versions import megabytes

BATCH = 32
SECONDS = 3.0  # duration of each throughput measurement


def images_per_second(version):
    """Throughput of `embed_images` of a SavedModel, in images/s, in batches of 32."""
    embed = tf.saved_model.load(str(version)).signatures["embed_images"]
    shape = embed.structured_input_signature[1]["images"].shape[1:]
    images = tf.constant(np.random.default_rng(0).uniform(0, 255, (BATCH, *shape)), tf.float32)
    embed(images=images)  # the first call prepares the graph
    batches, began = 0, time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        embed(images=images)["embedding"].numpy()
        batches += 1
    return batches * BATCH / (time.perf_counter() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path, help="folder of a run, runs/NAME")
    run = parser.parse_args().run.resolve()
    with one_sentence(parser.prog, ValueError, OSError):
        recipe = recipe_of(["--config", str(run / "config.yaml")])
        trained = find_version(run)
        model = load_run(run, trained)
        levels, images = number_of_levels(model.embedder), load_images(recipe)
        with named(images.test):
            embeddings = model.embed(images_to_score(images.test, images.dataset), verbose=1)
        print(f"{'levels':>8}{'MB':>8}{'images/s':>10}{'recall@1':>10}")
        with tempfile.TemporaryDirectory() as folder:
            for number in range(1, levels + 1):
                out = pathlib.Path(folder, str(number))
                version = write_next(serve_run(model, trained, number), out, trained)
                shallow = embeddings[:, : number * recipe.embedding_dim]
                data, gallery = apart(shallow, images.test.labels, images.queries)
                recall = recall_at_k(*data, k=1, **gallery)[1]
                cost = f"{megabytes(version):8.1f}{images_per_second(version):10,.0f}"
                print(f"{number:8}{cost}{recall:10.4f}", flush=True)


if __name__ == "__main__":
    main()
