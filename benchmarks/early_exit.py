"""What the early exits of a trained run cost and find: the curve to choose a level on.

    python benchmarks/early_exit.py runs/cars_hdc

Prints for the first level, the first two and so on the size of the SavedModel, the images that it
embeds in a second, in batches of 32 that are read already, and its Recall@1 of the test classes.
"""

import argparse
import pathlib
import tempfile

import numpy as np
import tensorflow as tf
import yaml
from tqdm import tqdm

import pipelines
from tfdml.evaluation import recall_at_k
from tfdml.serving.export import export_run, images_per_second, newest_version


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=pathlib.Path, help="folder of a run, runs/NAME")
    run = parser.parse_args().run
    recipe = yaml.safe_load((run / "config.yaml").read_text())
    trained = newest_version(run.parent.parent / "saved_models" / run.name)
    test = pipelines.load(recipe["dataset"], recipe["data_dir"], recipe["skip_invalid"]).test
    outputs = tf.saved_model.load(str(trained)).signatures["embed_images"].structured_outputs
    levels = outputs["embedding"].shape[1] // recipe["embedding_dim"]
    print(f"{'levels':>8}{'MB':>8}{'images/s':>10}{'recall@1':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, levels + 1):
            out = pathlib.Path(folder, str(number))
            version = export_run(run / "checkpoint.keras", trained, out, number)
            size = sum(file.stat().st_size for file in version.rglob("*") if file.is_file())
            recall = recall_at_k(embed(version, test), test.labels, k=1)[1]
            speed = images_per_second(version)
            print(f"{number:8}{size / 1e6:8.1f}{speed:10,.0f}{recall:10.4f}", flush=True)


def embed(version, split):
    signature = tf.saved_model.load(str(version)).signatures["embed_images"]
    size = tuple(signature.structured_input_signature[1]["images"].shape[1:])
    batches = tqdm(pipelines.evaluation_batches(split, size), desc="Embedding", delay=2)
    return np.concatenate([signature(images=images)["embedding"].numpy() for images in batches])


if __name__ == "__main__":
    main()
