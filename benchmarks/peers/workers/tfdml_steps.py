"""A training step by tfdml, as `fit` takes it."""

import os

import numpy as np

from benchmarks.peers.workers.tfdml_losses import versions
from tfdml.quiet import import_tensorflow

PRECISIONS = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


def prepare(settings, folder):
    os.environ["KERAS_BACKEND"] = settings.get("backend", "tensorflow")
    import_tensorflow()
    from benchmarks.training_step import model_on_noise
    from tfdml.runs.recipe import Recipe

    recipe = Recipe(
        loss="multi_similarity",
        loss_options={"epsilon": None},
        backbone=settings["network"],
        image_size=settings["pixels"],
        precision=PRECISIONS[settings["precision"]],
        classes_per_batch=settings["classes_per_batch"],
        images_per_class=settings["images_per_class"],
    )
    recipe, _ = recipe.completed(settings["classes_per_batch"])
    model, _ = model_on_noise(recipe)
    with np.load(folder / settings["weights"]) as arrays:
        model.embedder.set_weights(list(arrays.values()))
    with np.load(folder / settings["inputs"]) as arrays:
        images, labels = arrays["images"].astype("float32"), arrays["labels"]
    losses = []

    def work():
        losses.append(float(np.asarray(model.train_on_batch(images, labels))))
        return {"loss": losses[0]}

    work.versions = versions()
    return work
