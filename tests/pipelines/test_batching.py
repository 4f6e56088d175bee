import dataclasses
import gc
import os
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from sampled_rows import rows_of

from pipelines import (
    Augmentation,
    Balanced,
    Dataset,
    Groups,
    HardNeighbours,
    Mixed,
    Pairs,
    Preprocessing,
    Reader,
    Shuffled,
    Split,
    WholeClasses,
    balanced_batches,
    batches,
    evaluation_batches,
    group_batches,
    pair_batches,
    shuffled_batches,
    whole_class_batches,
)
from pipelines.decoded import DecodedImages
from pipelines.loading import cause_of
from pipelines.transforms import resize
from tfdml import EmbeddingModel
from tfdml.callbacks import StopAt
from tfdml.images.decoding import decode

EVERYTHING = Augmentation(
    crop=0.5, aspect=1.3, flip=True, rotation=20, zoom=0.2, shift=0.1, colour=0.3
)
TURNED = Augmentation(symmetries=4)
BUILDERS = {  # with the sampler of each
    "balanced": (lambda split, **o: balanced_batches(split, 3, 2, **o), Balanced(3, 2)),
    "mixed": (lambda split, **o: balanced_batches(split, 4, 3, sampler="mixed", **o), Mixed(4, 3)),
    "groups": (
        lambda split, **o: group_batches(
            split, 3, 16, super_classes=1, images_per_class=2, evenly=True, **o
        ),
        Groups(3, 16, 1, 2, True),
    ),
    "whole classes": (lambda split, **o: whole_class_batches(split, 11, **o), WholeClasses(11)),
    "shuffled": (lambda split, **o: shuffled_batches(split, 9, **o), Shuffled(9)),
    "pairs": (lambda split, **o: pair_batches(split, 10, **o), Pairs(10)),
}


def test_kept_images_are_forgotten_with_their_batches(path_split):
    next(iter(batches(path_split, Balanced(2, 2), Reader((8, 8, 3)), kept_bytes=10**6)))
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is DecodedImages]


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ((Preprocessing(warp_size=9, trim_white=True), TURNED), 243),
        ((Preprocessing(warp_size=9), Augmentation(crop=0.5)), 360),  # whole
    ],
)
def test_images_are_kept_decoded_as_far_as_they_fit(options, size, path_split):
    reader, sampler = Reader((8, 8, 3), *options), Balanced(10, 4)  # all images
    expected = [images for images, _ in batches(path_split, sampler, reader).take(3)]
    half = batches(path_split, sampler, reader, kept_bytes=20 * size).take(3)
    np.testing.assert_array_equal([images for images, _ in half], expected)
    found = iter(batches(path_split, sampler, reader, kept_bytes=40 * size))
    for number, images in enumerate(expected):
        np.testing.assert_array_equal(next(found)[0], images)
        for path in [] if number else path_split.images:
            os.remove(path)


@pytest.fixture
def split(rng):
    images = rng.integers(0, 256, (40, 10, 12, 3), dtype=np.uint8)
    return Split(images, np.repeat(np.arange(10), 4))


@pytest.fixture
def path_split(split, tmp_path):
    paths = [str(tmp_path / f"{index}.png") for index in range(40)]
    for path, image in zip(paths, split.images, strict=True):
        Image.fromarray(image).save(path)
    return Split(np.array(paths), split.labels)


def take(count, *arguments, build=balanced_batches, **options):
    return list(build(*arguments, **options).take(count).as_numpy_iterator())


def assert_equal_batches(batches, others):
    assert len(batches) == len(others)
    for (images, labels), (other_images, other_labels) in zip(batches, others, strict=True):
        np.testing.assert_array_equal(labels, other_labels)
        np.testing.assert_array_equal(images, other_images)


@pytest.mark.parametrize("purpose", ["place", "warp", "colour"])
def test_draws_differ_by_seed_step_and_row(purpose):
    drawn = (
        Reader().draws(seed, step, 2)[purpose].numpy() for seed, step in ((0, 0), (0, 1), (1, 0))
    )
    first, *others = drawn
    for other in (first[::-1], *others):
        assert (first != other).all()


def test_all_images_of_a_batch_have_the_same_symmetry(rng):
    image = rng.integers(0, 256, (1, 4, 4, 1), dtype=np.uint8)
    split = Split(np.repeat(image, 4, axis=0), [0, 0, 1, 1])
    batches = take(60, split, 2, 2, augmentation=Augmentation(symmetries=8))
    for images, _ in batches:
        np.testing.assert_array_equal(images, np.repeat(images[:1], 4, axis=0))
    assert len({images[0].tobytes() for images, _ in batches}) == 8


@pytest.fixture
def nested_splits(split, path_split):
    """The images and their paths, in classes of 2 to 8 images of 3 super-classes."""
    labels = np.repeat(np.arange(9), [2, 3, 8, 4, 6, 7, 2, 5, 3])
    return [
        Split(source.images, labels, super_labels=labels // 3) for source in (split, path_split)
    ]


@pytest.mark.parametrize("name", BUILDERS)
def test_batches_are_the_rows_that_the_sampler_chooses(nested_splits, name):
    build, sampler = BUILDERS[name]
    texts = {"numbers": np.arange(40.0), "texts": [f"text {row}" for row in range(40)]}
    split = dataclasses.replace(nested_splits[0], images=None, inputs=texts)
    chosen, found = rows_of(6, sampler, split, 5, start=7), build(split, seed=5, start_step=7)
    for indices, (inputs, labels) in zip(chosen, found.as_numpy_iterator(), strict=False):
        np.testing.assert_array_equal(labels, split.labels[indices])
        np.testing.assert_array_equal(inputs["numbers"], indices)
        assert [text.decode() for text in inputs["texts"]] == [f"text {row}" for row in indices]
    sizes, fixed = {len(indices) for indices in chosen}, found.element_spec[1].shape[0]
    assert sizes == {fixed} if fixed else max(sizes) <= sampler.batch_size


def test_batches_of_paths_are_those_of_their_pixels(nested_splits):
    options = {"build": whole_class_batches, "image_size": (8, 6, 3), "augmentation": EVERYTHING}
    assert_equal_batches(*(take(6, split, 11, start_step=4, **options) for split in nested_splits))


def test_a_function_reads_rows_by_a_seed_of_row_and_step(nested_splits):
    def noisy(row, seed):
        image = tf.cast(row["pixels"] if "pixels" in row else decode_path(row), tf.float32)
        return tf.reduce_mean(image) + tf.random.stateless_uniform([3], seed)

    def decode_path(row):
        return decode(tf.io.read_file(row["path"]), 3)

    for split, sampler in zip(nested_splits, (WholeClasses(11), Balanced(3, 2)), strict=True):
        whole = take(5, split, sampler, noisy, build=batches)
        resumed = take(2, split, sampler, noisy, build=batches, start_step=3)
        assert_equal_batches(whole[3:], resumed)
        drawn = np.concatenate([rows for rows, _ in whole])
        assert len(np.unique(drawn - drawn[:, :1], axis=0)) == len(drawn)
        scored = next(evaluation_batches(split, reader=noisy).as_numpy_iterator())
        means = nested_splits[0].images.mean(axis=(1, 2, 3))[:, None]
        draw = tf.random.stateless_uniform([3], [0, 0]).numpy()
        np.testing.assert_allclose(scored, means + draw, rtol=1e-5)
    rows = Split(inputs=[[1.0], [2.0]], labels=[0, 1])
    doubled = batches(rows, Shuffled(2), lambda row, _: 2 * row)
    assert sorted(np.ravel(next(iter(doubled))[0])) == [2, 4]
    with pytest.raises(TypeError, match="`reader` must be a `Reader`, a function of a row and"):
        batches(rows, Shuffled(2), "decode")
    with pytest.raises(ValueError, match="make images: a split of `inputs` takes neither"):
        shuffled_batches(rows, 2, augmentation=Augmentation())


@pytest.mark.parametrize(
    "build",
    [
        BUILDERS["balanced"][0],
        lambda split: pair_batches(split, 8, hard_neighbours=HardNeighbours(split.labels, 8, 2)),
        evaluation_batches,
    ],
)
def test_batches_take_all_cores_without_autotuning(nested_splits, build):
    options = build(nested_splits[0]).options()
    assert options.autotune.enabled is False
    assert options.autotune.initial_parallelism == os.cpu_count()


def test_evaluation_gives_all_images_or_rows_in_order(split, path_split):
    rows = Split(inputs=split.images, labels=split.labels)
    for source, size in ((split, (10, 12, 3)), (path_split, (10, 12, 3)), (rows, None)):
        found = evaluation_batches(source, size, batch_size=16, with_labels=True)
        images, labels = zip(*found.as_numpy_iterator(), strict=True)
        assert [len(batch) for batch in images] == [16, 16, 8]
        np.testing.assert_array_equal(np.concatenate(images), split.images)
        np.testing.assert_array_equal(np.concatenate(labels), split.labels)


def test_images_are_what_is_in_the_boxes(split, path_split, rng):
    left, top = rng.integers(0, 6, 40), rng.integers(0, 5, 40)
    boxes = np.stack(
        [left, top, left + rng.integers(1, 7, 40), top + rng.integers(1, 6, 40)], axis=1
    )
    parts = [  # what a loop cuts out of the images
        resize(image[upper:lower, first:last], (8, 6, 3)).numpy()
        for image, (first, upper, last, lower) in zip(split.images, boxes.tolist(), strict=True)
    ]
    splits = [dataclasses.replace(source, boxes=boxes) for source in (split, path_split)]
    options = {"image_size": (8, 6, 3), "augmentation": EVERYTHING}
    assert_equal_batches(*(take(3, each, 3, 2, **options) for each in splits))
    for each in splits:
        batches = evaluation_batches(each, (8, 6, 3), batch_size=16).as_numpy_iterator()
        np.testing.assert_array_equal(np.concatenate(list(batches)), parts)
    [(images, _)] = take(1, splits[0], 11, build=whole_class_batches, image_size=(8, 6, 3))
    [rows] = rows_of(1, WholeClasses(11), split)
    np.testing.assert_array_equal(images, np.stack([parts[row] for row in rows]))


def test_a_box_outside_of_its_file_is_rejected_with_the_name(path_split):
    boxes = np.tile([0, 0, 12, 10], (40, 1))
    boxes[7] = [3, 2, 13, 10]
    split = dataclasses.replace(path_split, boxes=boxes)
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(evaluation_batches(split, (8, 6, 3)))
    message = "7.png: a box must be inside its image. Received: box=[3, 2, 13, 10], width=12, "
    assert message in cause_of(error.value, split)


def test_parts_are_the_rows_of_a_batch_and_read_no_others(path_split):
    options = {"start_step": 2, "image_size": (8, 6, 3), "augmentation": EVERYTHING}
    [(images, labels)] = take(1, path_split, 4, 3, **options)
    [rows] = rows_of(1, Balanced(4, 3), path_split, start=2)
    for index in range(2):
        own = slice(6 * index, 6 * index + 6)
        paths = path_split.images.copy()
        paths[np.delete(np.arange(40), rows[own])] = "missing.png"
        found = take(1, Split(paths, path_split.labels), 4, 3, part=(index, 2), **options)
        assert_equal_batches(found, [(images[own], labels[own])])


def test_a_function_says_the_first_step_whenever_iteration_begins(nested_splits):
    split, step = nested_splits[0], tf.Variable(0)
    called = balanced_batches(split, 3, 2, start_step=lambda: step)
    for first in (0, 7):
        step.assign(first)
        expected = take(3, split, 3, 2, start_step=first)
        assert_equal_batches(list(called.take(3).as_numpy_iterator()), expected)
    step.assign(-1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`start_step` must be >= 0"):
        next(iter(called))


class Interruption(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == 7:
            raise KeyboardInterrupt


def test_a_fit_that_keras_restores_goes_on_with_its_batches(rng, tmp_path):
    split = Split(inputs=rng.normal(size=(40, 5)).astype("float32"), labels=np.arange(40) % 8)

    def trained(folder, *callbacks):
        embedder = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
        embedder.set_weights([np.linspace(-1, 1, 15).reshape(5, 3), np.zeros(3)])
        model = EmbeddingModel(embedder)
        model.compile("adam", loss="triplet", jit_compile=False)
        batches = balanced_batches(split, 3, 2, start_step=lambda: model.optimizer.iterations)
        backup = keras.callbacks.BackupAndRestore(tmp_path / folder, save_freq=3)
        callbacks = [backup, StopAt(12), *callbacks]
        model.fit(batches, steps_per_epoch=4, epochs=3, verbose=0, callbacks=callbacks)
        return model.get_weights()

    expected = trained("whole")
    with pytest.raises(KeyboardInterrupt):
        trained("interrupted", Interruption())
    for own, weights in zip(trained("interrupted"), expected, strict=True):
        np.testing.assert_array_equal(own, weights)


def balanced(split, size=None, classes=2, images=2, **options):
    return balanced_batches(split, classes, images, image_size=size, **options)


@pytest.mark.parametrize("build", [evaluation_batches, balanced])
def test_a_size_of_images_must_suit_the_split(split, path_split, build):
    for source, size, message in (
        *((split, size, f"image_size={size}") for size in ((8, 8), (8, 0, 3), (8.0, 8, 3), 8)),
        (path_split, None, "(height, width, channels) for paths. Received: image_size=None"),
        (path_split, (8, 8, 2), "1 or 3 channels for paths. Received: image_size=(8, 8, 2)"),
        (split, (8, 8, 1), "the channels of the images. Received: image_size=(8, 8, 1)"),
    ):
        with pytest.raises(ValueError, match=rf"`image_size` must .*{re.escape(message)}"):
            build(source, size)
    other = Dataset("x", split, Split(split.images, split.labels + 10), image_size=(10, 12, 3))
    message = "such as `dataset.train`. Received: split of type Dataset"
    with pytest.raises(TypeError, match=f"^`split` must be a `Split`, {message}$"):
        build(other)


@pytest.mark.parametrize(
    ("build", "options", "error", "message"),
    [
        (balanced, {"seed": -1}, ValueError, "`seed` must be >= 0. Received: seed=-1"),
        (balanced, {"start_step": -1}, ValueError, "`start_step` must be >= 0. Received: start"),
        (balanced, {"sampler": "mxed"}, ValueError, "must be one of 'balanced', 'mixed'"),
        (balanced, {"classes": 11}, ValueError, "Received: classes_per_batch=11, classes=10"),
        (balanced, {"part": (0, 3)}, ValueError, "`part` must be (i, n), 0 <= i < n, of an n that"),
        (balanced, {"part": (2, 2)}, ValueError, "`part` must be"),
        (balanced, {"part": (-1, 2)}, ValueError, "`part` must be"),
        (balanced, {"augmentation": {}}, TypeError, "must be an `Augmentation` or None. Received:"),
        (balanced, {"augmentation": TURNED}, ValueError, "square images. Received: symmetries=4"),
        (evaluation_batches, {"batch_size": 0}, ValueError, "`batch_size` must be >= 1. Received"),
        (evaluation_batches, {"with_labels": 1}, TypeError, "`with_labels` must be true or false"),
    ],
)
def test_rejects_what_cannot_be_made(split, build, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        build(split, **options)


def test_an_error_of_the_machine_blames_no_image(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    split = Split([tmp_path / "broken.png"] * 2, np.zeros(2, int))
    assert "broken.png" in cause_of(tf.errors.InvalidArgumentError(None, None, "bad"), split)
    for error_class in (tf.errors.ResourceExhaustedError, tf.errors.InternalError):
        error = error_class(None, None, "no memory")
        assert cause_of(error, split) == "no memory"
