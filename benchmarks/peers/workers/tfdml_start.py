"""What tfdml starts a race with: embeddings of the untrained network, and augmented images."""

import numpy as np

from benchmarks.peers.workers.race_images import draws_of, images_of
from benchmarks.peers.workers.tfdml_losses import versions
from benchmarks.peers.workers.tfdml_race import dataset_of
from tfdml.quiet import import_tensorflow


def prepare(settings, folder):
    import_tensorflow()
    import keras

    import tfdml

    images = images_of(settings, folder)
    dataset, draws = dataset_of(settings, images), draws_of(settings)
    keras.utils.set_random_seed(settings["seed"])
    embedder = tfdml.models.build_embedder(
        settings["network"],
        input_shape=dataset.image_size,
        weights=settings["pretrained"] and str(folder / settings["pretrained"]),
    )

    def work():
        pixels = images["test_images"][: len(draws)].astype("float32")
        made = augmented(dataset, images["train_images"][: len(draws)], draws)
        return {"embeddings": embedder.predict(pixels, verbose=0), "augmented": made}

    work.versions = versions()
    return work


def augmented(dataset, images, draws):
    """Images as `pipelines.batches` makes them."""
    import tensorflow as tf

    from pipelines.transforms import part, random_flip, random_warp

    changes, size, draws = dataset.augmentation, dataset.image_size, draws.astype(np.float32)
    parts = [
        random_flip(part(image, size, dataset.preprocessing, changes, own), changes, own[4])
        for image, own in zip(images, draws, strict=True)
    ]
    whole = tf.stack([tf.cast(image, tf.float32) for image in parts])
    return random_warp(whole, changes.changed(flip=False), draws[:, 4:])
