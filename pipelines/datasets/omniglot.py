import numpy as np
import tensorflow as tf

from pipelines.datasets.tfds_images import batches_of, prepared
from pipelines.preprocessing import Augmentation
from pipelines.split import Dataset, Split
from tfdml.images.decoding import resize

SIDE = 28  # pixels; the originals have 105


def load(data_dir=None, skip_invalid=False, training=True):
    """Omniglot: 1,623 handwritten characters of 50 alphabets, 20 drawings each, through TFDS.

    Training: 964 characters of 30 alphabets (labels 0 to 963). Test: 659 of 20 other alphabets
    (labels 964 to 1622); TFDS numbers both in one sequence. 28 × 28 grey, white on black, resized
    with antialiasing. The alphabets are the super-classes. It is never downloaded.

    Source:
        Lake, Salakhutdinov, Tenenbaum. Human-level concept learning through probabilistic
        program induction. Science 2015.
    """
    builder = prepared("omniglot", data_dir)
    class_names = dict(enumerate(builder.info.features["label"].names))
    splits = []
    for part in ("train", "test"):
        batches = batches_of(builder, [part], ("image", "label", "alphabet"), _shrink)
        images, labels, alphabets = map(np.concatenate, zip(*batches, strict=True))
        splits.append(Split(images, labels, class_names, super_labels=alphabets))
    augmentation = Augmentation(rotation=15.0, zoom=0.15, shift=0.1)
    return Dataset("omniglot", *splits, image_size=(SIDE, SIDE, 1), augmentation=augmentation)


def _shrink(example):
    image = tf.io.decode_png(example["image"], channels=1)
    image = resize(255 - image, (SIDE, SIDE, 1))
    return tf.cast(tf.round(image), tf.uint8), example["label"], example["alphabet"]
