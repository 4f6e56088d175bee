"""Caches: what is written, how a write goes on, what is read, and what is rejected."""

import dataclasses
import io
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from full_disk import files_of_at_most
from PIL import Image

import pipelines
from pipelines import Augmentation, Dataset, Preprocessing, Reader, Split, records, shards
from pipelines.datasets.cached import WARP, sources_of
from pipelines.loading import cause_of

SIZE = (12, 12, 3)
SECOND = "images-00001.tfrecord"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Files of 8 classes: to train, in an order that is not that of the classes, and to score."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("photos")
    (folder / "link").symlink_to(folder)
    paths = [str(folder / "link" / f"{i}.{'jpg' if i % 2 else 'png'}") for i in range(32)]
    for path in paths:
        width, height = rng.integers(14, 50, 2).tolist()
        coarse = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8))
        photo = Image.new("RGB", (width + 30, height + 20), "white")
        photo.paste(coarse.resize((width, height), Image.Resampling.BICUBIC), (20, 5))
        photo.save(path)
    labels, scored = np.tile(2**40 + np.arange(4), 4), np.repeat([7, 8], 4)
    names = {int(label): f"class {label}" for label in [*np.unique(labels), 7, 8]}
    boxes = np.tile([[3, 2, 30, 25], [0, 0, 40, 30]], (16, 1))
    return Dataset(
        "photos",
        Split(paths[:16], labels, names, labels % 2, boxes[:16]),
        Split(paths[16:24], scored, names, scored, boxes[:8]),
        gallery=Split(paths[24:], scored, names, scored, boxes[:8]),
        image_size=SIZE,
        augmentation=Augmentation(crop=0.5, flip=True),
    )


@pytest.fixture(autouse=True, scope="module")
def _small_files():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shards, "SHARD_BYTES", 7 * 16**2 * shards.BYTES_PER_PIXEL)
        yield


def write(dataset, folder, **options):
    return shards.write_cache(dataset, folder, **{"size": 16, **options})


def load(folder, **options):
    return pipelines.load("cache", data_dir=folder, **options)


@pytest.fixture(scope="module")
def whole(dataset, tmp_path_factory):
    """A cache of JPEGs, in 5 files."""
    folder = tmp_path_factory.mktemp("cache") / "photos"
    write(dataset, folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


def contents_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "warp", [{}, *(pytest.param({name: True}, marks=pytest.mark.slow) for name in WARP[1:])]
)
def test_without_loss_batches_are_those_of_the_original_files(warp, dataset, tmp_path):
    write(dataset, tmp_path, quality=None, **warp)
    loaded = load(tmp_path)
    preprocessing = Preprocessing(warp_size=16, **warp)
    options = {"image_size": SIZE, "preprocessing": preprocessing}
    for build in (
        lambda split: pipelines.evaluation_batches(split, **options),
        lambda split: pipelines.balanced_batches(split, 3, 2, **options).map(lambda *each: each[0]),
    ):
        batches = (build(split).take(4) for split in (loaded.train, dataset.train))
        for found, expected in zip(*batches, strict=True):
            np.testing.assert_array_equal(found, expected)
    for name, split in dataset.splits.items():
        np.testing.assert_array_equal(loaded.splits[name].labels, split.labels)
        np.testing.assert_array_equal(loaded.splits[name].super_labels, split.super_labels)
        assert loaded.splits[name].names == split.names
        assert loaded.splits[name].holds_records
    assert (loaded.name, loaded.image_size) == ("photos", SIZE)
    assert loaded.augmentation == dataset.augmentation
    assert loaded.preprocessing.warp_size == 16


def test_grey_images_are_cached_as_they_are_read(dataset, tmp_path):
    write(dataclasses.replace(dataset, image_size=(12, 12, 1)), tmp_path, quality=None)
    read = Reader((12, 12, 1), Preprocessing(warp_size=16))
    rows = load(tmp_path).test.images, dataset.test.images, dataset.test.boxes
    for record, path, box in zip(*rows, strict=True):
        expected = read.image({"path": path, "box": box})
        np.testing.assert_array_equal(read(records.read(record)), expected)


def test_records_are_the_images_class_by_class(whole, dataset):
    files = sorted(map(str, whole.glob("*.tfrecord")))
    assert len(files) == 5
    found = list(tf.data.TFRecordDataset(files).as_numpy_iterator())
    loaded = load(whole)
    order = np.argsort(dataset.train.labels, kind="stable")
    assert [records.read(path) for path in loaded.train.images[order]] == found[:16]
    assert list(records.read_all(loaded.test.images)) == found[16:24]
    sources = [path.replace("/link", "") for path in dataset.train.images[::-1]]
    assert sources_of(loaded.train.images[::-1]) == sources
    with Image.open(io.BytesIO(found[0])) as image:
        assert (image.format, image.size) == ("JPEG", (16, 16))


def test_a_write_that_was_stopped_begins_anew(whole, dataset, tmp_path, monkeypatch, options_read):
    write_shard, calls = shards.write_shard, []

    def stopped(path, contents):
        calls.append(path.name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return write_shard(path, contents)

    with monkeypatch.context() as patched:
        patched.setattr(shards, "write_shard", stopped)
        with pytest.raises(KeyboardInterrupt):
            write(dataset, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no finished cache .* with python -m pip"):
        load(tmp_path)
    (tmp_path / "images-00001.unfinished").write_bytes(b"of a process that was killed")
    write(dataset, tmp_path)
    assert contents_of(tmp_path) == contents_of(whole)
    assert {options.autotune.enabled for options in options_read} == {False}
    with pytest.raises(ValueError, match="holds a cache: choose another folder, or delete it"):
        write(dataset, tmp_path)


def test_a_record_lost_in_training_is_named(folder):
    split = load(folder).train
    (folder / "images-00000.tfrecord").write_bytes(b"")
    with pytest.raises(tf.errors.OpError) as error:
        list(pipelines.evaluation_batches(split, SIZE))
    message = cause_of(error.value, split)
    assert "images-00000.tfrecord:" in message
    assert message.endswith(": write the cache again")


def test_a_full_disk_is_named(dataset, tmp_path):
    cannot = pytest.raises(OSError, match=r"images-00000.tfrecord cannot be written: ")
    with files_of_at_most(1000), cannot:
        write(dataset, tmp_path)
    assert contents_of(tmp_path) == {}


def test_only_separate_image_files_are_cached(whole, tmp_path):
    for other in (load(whole), pipelines.load("digits")):
        with pytest.raises(ValueError, match=f"image files. Received: dataset={other.name}"):
            write(other, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"size": 0}, ValueError, "`size` must be >= 1. Received: size=0"),
        ({"size": 4097}, ValueError, "`size` must be from 1 to 4096. Received: size=4097"),
        ({"quality": 101}, ValueError, "`quality` must be from 1 to 100. Received: quality=101"),
    ],
)
def test_rejects_settings_out_of_range(options, error, message, dataset, tmp_path):
    with pytest.raises(error, match=message):
        write(dataset, tmp_path / "none", **options)
    assert not (tmp_path / "none").exists()


def test_training_classes_with_a_single_image_are_those_of_the_original(dataset, tmp_path):
    labels = np.append(dataset.train.labels[1:], 2**41)
    train = dataclasses.replace(dataset.train, labels=labels, super_labels=None)
    write(dataclasses.replace(dataset, train=train), tmp_path)
    with pytest.raises(ValueError, match="1 training classes with a single image"):
        load(tmp_path)
    with pytest.warns(UserWarning, match="left out 1 training classes"):
        assert len(load(tmp_path, skip_invalid=True).train.labels) == 15
    loaded = load(tmp_path, training=False)
    assert len(loaded.train.labels) == 16
    assert loaded.train.super_labels is None


@pytest.mark.parametrize(
    ("break_it", "error", "message"),
    [
        (lambda f: (f / "manifest.json").unlink(), FileNotFoundError, "no finished cache in .*cop"),
        (lambda f: (f / "manifest.json").write_text("[]"), ValueError, "write the cache again by"),
        (
            lambda f: (f / "manifest.json").write_text(json.dumps({"format": 9})),
            ValueError,
            "must have format 1: delete the folder, and write .* Received: format=9",
        ),
        (lambda f: (f / "index.npz").unlink(), FileNotFoundError, "index.npz is missing: dele"),
        (lambda f: (f / "index.npz").write_bytes(b"x"), ValueError, "cannot be read"),
        (lambda f: (f / SECOND).unlink(), FileNotFoundError, f"{SECOND} is missing: delete"),
        (lambda f: (f / SECOND).write_bytes(b"x"), ValueError, rf"{SECOND} must have [\d,]+ bytes"),
    ],
)
def test_rejects_a_cache_that_is_not_whole(break_it, error, message, folder):
    break_it(folder)
    with pytest.raises(error, match=message):
        load(folder)


def test_a_cache_takes_no_boxes(whole, tmp_path):
    (tmp_path / "boxes.csv").write_text("path,x1,y1,x2,y2\na.png,0,0,1,1\n")
    with pytest.raises(ValueError, match="`boxes` cannot be applied to a cache"):
        load(whole, boxes=str(tmp_path / "boxes.csv"))


def test_a_record_is_the_bytes_at_its_offset_and_other_paths_are_files(tmp_path, rng):
    first, second = tmp_path / "a:1.tfrecord", tmp_path / "ü b.tfrecord"
    one, two = rng.bytes(500), rng.bytes(300)
    first.write_bytes(one)
    second.write_bytes(two)
    paths = [f"{first}:0:500", f"{second}:299:1", f"{first}:17:0", f"{second}:5:9"]
    assert all(map(records.is_record, paths))
    assert records.read_all(paths).tolist() == [one, two[299:], b"", two[5:14]]
    for path in (first, str(first), tmp_path / "a.tfrecord:1", "a.jpg:1:2"):
        assert not records.is_record(path)
    assert records.read(first) == one
    for offset, length in ((0, 501), (500, 1), (10**9, 3)):
        with pytest.raises(OSError, match=f"a:1.tfrecord ends before byte {offset + length}"):
            records.read(f"{first}:{offset}:{length}")
    with pytest.raises(FileNotFoundError, match=r"none\.tfrecord"):
        records.read_all([f"{tmp_path}/none.tfrecord:0:1"])
