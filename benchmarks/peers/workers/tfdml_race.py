"""A run of a race by tfdml: what `train.py` does, until the budget is spent.

Its settings are those of a trial, or a recipe.
"""

import numpy as np

from benchmarks.peers.workers.budget import Budget
from benchmarks.peers.workers.race_images import images_of, recalls
from benchmarks.peers.workers.tfdml_losses import versions
from tfdml.quiet import import_tensorflow

ENDLESS = 1_000_000  # steps, more than any budget has


def prepare(settings, folder):
    import_tensorflow()
    from pipelines import evaluation_batches
    from tfdml.models.precision import in_float32

    images = images_of(settings, folder)

    def work():
        budget = Budget(**settings["budget"])
        recipe = recipe_of(settings, folder)
        dataset = dataset_of(settings, images, recipe.augmentation)
        model = trained(recipe, dataset, budget, folder / settings["weights"])
        seconds = budget.elapsed()
        steps = int(model.optimizer.iterations)
        rows = in_float32(model.embedder).predict(evaluation_batches(dataset.test), verbose=0)
        scores = recalls(rows, images["test_labels"], settings["ks"])
        return {**scores, "steps": steps, "seconds": seconds}

    work.versions = versions()
    return work


def recipe_of(settings, folder):
    from tfdml.runs.recipe import Recipe

    weights = settings["pretrained"] and str(folder / settings["pretrained"])
    fixed = {"backbone": settings["network"], "weights": weights, "seed": settings["seed"]}
    fixed |= {"schedule": "constant", "steps": ENDLESS}
    recipe = Recipe(**{**(settings.get("recipe") or trial_of(settings)), **fixed})
    return recipe.completed(recipe.classes_per_batch)[0]


def trial_of(settings):
    return {
        "loss": settings["name"],
        "loss_options": settings["options"],
        "head_multiplier": settings["head_multiplier"],
        "head_steps": 0,
        "learning_rate": settings["rate"],
        "classes_per_batch": settings["classes_per_batch"],
        "images_per_class": settings["images_per_class"],
    }


def dataset_of(settings, images, augmentation=()):
    """The `Dataset` of a race, with the options of its augmentation changed as a recipe says.

    It numbers the classes that are scored after the others.
    """
    import pipelines
    from pipelines.split import Dataset

    train = pipelines.Split(images["train_images"], images["train_labels"])
    others = images["test_labels"] + images["train_labels"].max() + 1
    test = pipelines.Split(images["test_images"], others)
    pixels, (stored, *_, channels) = settings["pixels"], images["train_images"].shape[1:]
    return Dataset(
        "race",
        train,
        test,
        image_size=(pixels, pixels, channels),
        augmentation=pipelines.Augmentation(**settings["augmentation"] | dict(augmentation)),
        preprocessing=pipelines.Preprocessing(None if stored == pixels else stored),
    )


def trained(recipe, dataset, budget, weights):
    """The model after the budget, whose learning rate falls over it."""
    import keras

    from tfdml import optimizers
    from tfdml.runs.network import build_model
    from tfdml.runs.run_batches import training_batches

    class Spend(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.model.optimizer.learning_rate = recipe.learning_rate * budget.rate(batch)

        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = budget.used(batch + 1) >= 1

    model = build_model(recipe, dataset.train, dataset)
    check_start(model.embedder, weights)
    options = {**model.optimizer.get_config(), "learning_rate": recipe.learning_rate}
    model.compile(optimizer=optimizers.Adam.from_config(options), loss=model.loss)
    batches, _ = training_batches(recipe, 0, dataset.train, dataset)
    model.fit(batches, steps_per_epoch=ENDLESS, callbacks=[Spend()], verbose=0)
    return model


def check_start(embedder, path):
    """Raises a ValueError unless an embedder has the weights that the peer starts with."""
    with np.load(path) as arrays:
        others = list(arrays.values())
    weights = embedder.get_weights()
    if len(weights) != len(others) or not all(map(np.array_equal, weights, others)):
        raise ValueError(f"the network must start with the weights of {path}")
