"""Features of a frozen backbone: embedded once, kept beside the runs, and found again."""

import dataclasses
import functools
import hashlib
import json
import os
import re
import sys
import zipfile

import keras
import numpy as np
import tensorflow as tf

import pipelines
import tfdml
from pipelines.loading import named
from tfdml.checks import check_fits
from tfdml.files import replacing
from tfdml.models import backbone_of
from tfdml.models.precision import in_float32
from tfdml.runs.folders import RUNS
from tfdml.runs.run_batches import images_to_score
from tfdml.serving.bounded_batches import fitting_batch_size


@dataclasses.dataclass(frozen=True)
class _InOrder:
    """A sampler of all rows in turn, from the first again after the last."""

    batch_size: int

    def indices(self, split, seed, step):
        rows = len(split.labels)
        first = tf.cast(step, tf.int64) % -(-rows // self.batch_size) * self.batch_size
        return tf.range(first, tf.minimum(first + self.batch_size, rows))


class Features:
    """The features that the backbone of an embedder has of images, as a dataset makes them.

    Those that any run has embedded are read from a file, if the images are unchanged.
    """

    def __init__(self, embedder, dataset):
        self._dataset, self._network = dataset, _network_of(embedder)
        self._path = RUNS / f"features_{_digest_of(self._network, dataset.preprocessing)}.npz"

    def embedded(self, split, views=0, seed=0):
        """A split with the features in place of the images, then those of random views of each."""
        stamps, count = _stamps(split), 1 + views
        width, images = self._network.output_shape[-1], len(stamps)
        check_fits(4 * count * images * width, "the features", images=images, views=views)
        parts = [self._rows(split, stamps)]
        for view in range(views):  # whose draws depend on the place of an image
            kind = f"{seed} {view} {self._dataset.augmentation} {''.join(stamps)}"
            parts.append(self._rows(split, [_digest(stamp + kind) for stamp in stamps], view, seed))
        known = {"inputs": np.concatenate(parts), "labels": np.tile(split.labels, count)}
        if split.super_labels is not None:
            known["super_labels"] = np.tile(split.super_labels, count)
        return dataclasses.replace(split, images=None, boxes=None, warped=None, **known)

    def _rows(self, split, stamps, view=None, seed=0):
        """(n, width) floats of the images, or of a view of each, by the stamps of both."""
        known, rows = self._read()
        there = set(known)
        missing = [row for row, stamp in enumerate(stamps) if stamp not in there]
        if missing:
            if view is None:
                found = self._embed(split.subset(missing), view, seed)
            else:
                found = self._embed(split, view, seed)[missing]
            known, rows = self._read()  # with what other runs have embedded meanwhile
            rows = np.concatenate([rows, found])
            known = [*known, *(stamps[row] for row in missing)]
            self._write(known, rows)
        place = {stamp: row for row, stamp in enumerate(known)}
        return rows[[place[stamp] for stamp in stamps]]

    def _embed(self, split, view, seed):
        dataset, size = self._dataset, self._dataset.image_size
        batches = images_to_score(split, dataset)
        if view is not None:
            sampler = _InOrder(fitting_batch_size(size))
            number = -(-len(split.labels) // sampler.batch_size)
            reader = pipelines.Reader(size, dataset.preprocessing, dataset.augmentation)
            batches = pipelines.batches(split, sampler, reader, seed, view * number).take(number)
            batches = batches.map(lambda images, _: images)
        with named(split):
            return self._network.predict(batches, verbose=int(sys.stdout.isatty()))

    def _read(self):
        """The stamps and the rows of the file; none if there is no whole one."""
        try:
            with np.load(self._path) as archive:
                return archive["stamps"].tolist(), archive["features"]
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
            return [], np.empty((0, self._network.output_shape[-1]), np.float32)

    def _write(self, stamps, rows):
        RUNS.mkdir(exist_ok=True)
        with replacing(self._path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, stamps=np.array(stamps), features=rows)


@functools.lru_cache(maxsize=1)  # of the run, which asks several times
def _network_of(embedder):
    return in_float32(backbone_of(embedder))


def _digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _digest_of(network, preprocessing):
    """That of a network, whatever its layers' numbers and what is frozen, and the preprocessing."""
    config = json.dumps(keras.saving.serialize_keras_object(network))
    config = re.sub(r'_\d+"|"trainable": \w+|"frozen": \[[^]]*\]', '"', config)
    digest = hashlib.sha256(config.encode())
    for array in network.get_weights():
        digest.update(array.tobytes())
    digest.update(f"{tfdml.__version__} {preprocessing}".encode())
    if preprocessing.mean_image is not None:
        digest.update(preprocessing.mean_image.tobytes())
    return digest.hexdigest()[:16]


def _stamps(split):
    """A text for each image that differs where its file, pixels or box do."""
    stamps = []
    for row, image in enumerate(split.images):
        if split.holds_paths:
            found = os.stat(image.rsplit(":", 2)[0] if split.holds_records else image)
            content = f"{os.path.abspath(image)} {found.st_size} {found.st_mtime_ns}".encode()
        else:
            content = image.tobytes()
        box = b"" if split.boxes is None else split.boxes[row].tobytes()
        stamps.append(hashlib.sha256(content + box).hexdigest()[:32])
    return stamps
