import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from full_disk import files_of_at_most
from PIL import Image

import pipelines
from pipelines import Augmentation, Dataset, Preprocessing, Split, cache, records, shards

SIZE = (12, 12, 3)
WARPS = {
    "warped": {},
    "aspect kept": {"keep_aspect": True},
    "trimmed": {"trim_white": True},
}


def write_photos(folder, count):
    rng = np.random.default_rng(0)
    folder.mkdir()
    paths = []
    for index in range(count):
        height, width = rng.integers(14, 50, 2)
        coarse = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8))
        photo = Image.new("RGB", (int(width) + 30, int(height) + 20), "white")
        photo.paste(coarse.resize((int(width), int(height)), Image.Resampling.BICUBIC), (20, 5))
        paths.append(str(folder / f"{index}.{'jpg' if index % 2 else 'png'}"))
        photo.save(paths[-1])
    return np.array(paths)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Files of 8 classes: to train, in an order that is not that of the classes, and to score."""
    paths = write_photos(tmp_path_factory.mktemp("data") / "photos", 32)
    labels = np.tile(2**40 + np.arange(4), 4)
    names = {int(label): f"class {label}" for label in [*np.unique(labels), 7, 8]}
    scored = np.repeat([7, 8], 4)
    return Dataset(
        "photos",
        Split(paths[:16], labels, names, super_labels=labels % 2),
        Split(paths[16:24], scored, names, super_labels=scored),
        gallery=Split(paths[24:], scored, names, super_labels=scored),
        image_size=SIZE,
        augmentation=Augmentation(crop=0.5, flip=True),
    )


def write(dataset, folder, **options):
    return shards.write_cache(dataset, folder, **{"size": 16, "images_per_file": 7, **options})


@pytest.fixture(scope="module")
def written(dataset, tmp_path_factory):
    """A cache of JPEGs, in 5 files."""
    folder = tmp_path_factory.mktemp("cache") / "photos"
    write(dataset, folder)
    return folder


def assert_equal_images(split, other, **options):
    scored, again = (
        np.concatenate(list(pipelines.evaluation_batches(each, SIZE, **options)))
        for each in (split, other)
    )
    np.testing.assert_array_equal(scored, again)


def assert_equal_batches(batches_of, split, other, *sizes, **options):
    """The same images to train on, with random changes."""
    options |= {"image_size": SIZE, "augmentation": Augmentation(flip=True)}
    both = (batches_of(each, *sizes, **options).as_numpy_iterator() for each in (split, other))
    for (images, labels), (others, other_labels) in itertools.islice(zip(*both, strict=True), 4):
        np.testing.assert_array_equal(labels, other_labels)
        np.testing.assert_array_equal(images, others)
        assert images.std() > 1


@pytest.mark.parametrize(
    ("warp", "trains"),
    [
        ("warped", True),
        ("aspect kept", False),
        ("trimmed", False),
        pytest.param("aspect kept", True, marks=pytest.mark.slow),
        pytest.param("trimmed", True, marks=pytest.mark.slow),
    ],
)
def test_without_loss_batches_are_those_of_the_original_files(warp, trains, dataset, tmp_path):
    number = 7 if warp == "warped" else 100
    warp = WARPS[warp]
    write(dataset, tmp_path, quality=None, images_per_file=number, **warp)
    loaded = pipelines.load("cache", data_dir=tmp_path)
    preprocessing = Preprocessing(warp_size=16, **warp)
    assert_equal_images(loaded.train, dataset.train, preprocessing=preprocessing)
    if trains:
        both = loaded.train, dataset.train
        assert_equal_batches(pipelines.balanced_batches, *both, 3, 2, preprocessing=preprocessing)
    for name, split in dataset.splits.items():
        np.testing.assert_array_equal(loaded.splits[name].labels, split.labels)
        np.testing.assert_array_equal(loaded.splits[name].super_labels, split.super_labels)
        assert loaded.splits[name].names == split.names
    assert (loaded.name, loaded.image_size) == ("photos", SIZE)
    assert loaded.augmentation == dataset.augmentation


def test_jpegs_give_the_batches_of_the_same_jpegs_in_files(written, tmp_path):
    split = pipelines.load("cache", data_dir=written).train
    paths = [str(tmp_path / f"{row}.jpg") for row in range(len(split.images))]
    for path, record in zip(paths, split.images, strict=True):
        with open(path, "wb") as file:
            file.write(records.read(record))
    files = Split(np.array(paths), split.labels, super_labels=split.super_labels)
    for preprocessing in (Preprocessing(warp_size=16), Preprocessing()):
        assert_equal_images(split, files, preprocessing=preprocessing)
    assert_equal_batches(pipelines.group_batches, split, files, 2, 6)
    with Image.open(paths[0]) as image:
        assert (image.format, image.size) == ("JPEG", (16, 16))


def test_grey_images_and_boxes_are_cached_as_they_are_read(dataset, tmp_path):
    boxes = np.tile([3, 2, 30, 25], (16, 1))
    train = dataclasses.replace(dataset.train, boxes=boxes)
    test = dataclasses.replace(dataset.test, boxes=boxes[:8])
    grey = Dataset("grey", train, test, image_size=(12, 12, 1))
    write(grey, tmp_path, quality=None, images_per_file=100)
    loaded = pipelines.load("cache", data_dir=tmp_path).train
    options = {"preprocessing": Preprocessing(warp_size=16)}
    found, expected = (
        np.concatenate(list(pipelines.evaluation_batches(each, (12, 12, 1), **options)))
        for each in (loaded, train)
    )
    np.testing.assert_array_equal(found, expected)


def test_files_are_examples_that_any_program_reads_class_by_class(written, dataset):
    features = {
        name: tf.io.FixedLenFeature([], kind)
        for name, kind in (
            ("image/encoded", tf.string),
            ("image/filename", tf.string),
            ("image/class/label", tf.int64),
            ("image/class/text", tf.string),
        )
    }
    files = sorted(map(str, written.glob("*.tfrecord")))
    assert len(files) == 5
    found = list(tf.data.TFRecordDataset(files).as_numpy_iterator())
    for record in found:  # two processes write the same bytes
        example = tf.train.Example.FromString(record)
        assert example.SerializeToString(deterministic=True) == record
    rows = [tf.io.parse_single_example(record, features) for record in found]
    assert len(rows) == 32
    trained = [int(row["image/class/label"]) for row in rows[:16]]
    assert trained == sorted(dataset.train.labels)
    by_name = dict(zip(dataset.train.images, dataset.train.labels, strict=True))
    loaded = pipelines.load("cache", data_dir=written).train
    contents = dict(zip(dataset.train.images, loaded.images, strict=True))
    for row in rows[:16]:
        name = row["image/filename"].numpy().decode()
        assert by_name[name] == int(row["image/class/label"])
        assert row["image/class/text"].numpy().decode() == f"class {by_name[name]}"
        assert records.read(contents[name]) == row["image/encoded"].numpy()


def contents_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_images_are_read_without_autotuning(dataset, tmp_path, options_read):
    write(dataset, tmp_path / "photos", images_per_file=100)
    assert {options.autotune.enabled for options in options_read} == {False}


def test_a_write_that_was_stopped_goes_on(written, dataset, tmp_path, monkeypatch):
    write_shard, calls = shards.write_shard, []

    def stopped(path, plan, rows, images):
        calls.append(path.name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return write_shard(path, plan, rows, images)

    monkeypatch.setattr(shards, "write_shard", stopped)
    with pytest.raises(KeyboardInterrupt):
        write(dataset, tmp_path)
    killed, other = (tmp_path / f"images-00003.tfrecord.{name}.unfinished" for name in "xy")
    killed.write_bytes(b"of a write that was killed")
    os.utime(killed, (0, 0))
    other.write_bytes(b"of a process that still writes")
    (tmp_path / "images-00001.json").write_text("{")  # killed before it listed its file
    with pytest.raises(FileNotFoundError, match=r"no finished cache .* with python -m pip"):
        pipelines.load("cache", data_dir=tmp_path)
    calls.clear()
    monkeypatch.setattr(
        shards, "write_shard", lambda *a: calls.append(a[0].name) or write_shard(*a)
    )
    write(dataset, tmp_path)
    assert calls == [f"images-0000{number}.tfrecord" for number in (1, 2, 3, 4)]
    other.unlink()
    assert contents_of(tmp_path) == contents_of(written)


def test_two_writes_of_one_folder_at_once_are_kept_apart(written, dataset, tmp_path, monkeypatch):
    write_shard, others = shards.write_shard, iter([True])

    def while_another_writes(path, plan, rows, images):
        def rows_and_another_write():
            for row in rows:
                if next(others, False):  # after the first file is begun
                    write(dataset, tmp_path)
                yield row

        return write_shard(path, plan, rows_and_another_write(), images)

    monkeypatch.setattr(shards, "write_shard", while_another_writes)
    write(dataset, tmp_path)
    assert contents_of(tmp_path) == contents_of(written)


def test_a_damaged_file_is_found_and_made_anew(written, dataset, tmp_path):
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    good, path = contents_of(tmp_path), tmp_path / "images-00002.tfrecord"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    pipelines.load("cache", data_dir=tmp_path)  # of the same size
    with pytest.raises(ValueError, match=r"00002.tfrecord has changed .* as before to write"):
        shards.verify(tmp_path)
    write(dataset, tmp_path)
    assert contents_of(tmp_path) == good
    path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r"00002.tfrecord must have [\d,]+ bytes, not [\d,]+: run"):
        pipelines.load("cache", data_dir=tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"00002.tfrecord is missing: run"):
        pipelines.load("cache", data_dir=tmp_path)
    write(dataset, tmp_path)
    assert contents_of(tmp_path) == good
    shards.verify(tmp_path)


def test_a_record_lost_in_training_is_named(written, tmp_path):
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    loaded = pipelines.load("cache", data_dir=tmp_path)
    (tmp_path / "images-00000.tfrecord").write_bytes(b"")
    with pytest.raises(tf.errors.OpError) as error:
        list(pipelines.evaluation_batches(loaded.train, SIZE))
    from pipelines.images import cause_of

    message = cause_of(error.value, loaded.train)
    assert "images-00000.tfrecord:" in message
    assert message.endswith(": write the cache again")


def test_a_full_disk_keeps_what_is_finished(written, dataset, tmp_path):
    shards = json.loads((written / "manifest.json").read_text())["shards"]
    sizes = [shard["bytes"] for shard in shards]
    largest = max(sizes[1:])
    assert sizes[0] < largest
    cannot = pytest.raises(OSError, match=r"images-0000\d.tfrecord cannot be written: ")
    with files_of_at_most(largest - 1), cannot:
        write(dataset, tmp_path / "full")
    left = contents_of(tmp_path / "full")
    assert {"images-00000.tfrecord", "images-00000.json"} <= set(left)
    assert not [name for name in left if "unfinished" in name or "manifest" in name]
    write(dataset, tmp_path / "full")
    assert contents_of(tmp_path / "full") == contents_of(written)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quality": 90}, "of other settings: .* It has quality=95, now 90"),
        ({"size": 20, "quality": None}, "It has warp_size=16, now 20, quality=95, now None"),
        ({"trim_white": True}, "It has trim_white=False, now True"),
    ],
)
def test_a_folder_keeps_the_settings_that_it_began_with(options, message, written, dataset):
    before = contents_of(written)
    with pytest.raises(ValueError, match=message):
        write(dataset, written, **options)
    assert contents_of(written) == before


def test_a_folder_keeps_the_images_that_it_began_with(written, dataset):
    labels = dataset.train.labels[::-1].copy()
    other = dataclasses.replace(dataset, train=Split(dataset.train.images, labels))
    with pytest.raises(ValueError, match="holds a cache of other images: choose another folder"):
        write(other, written)


@pytest.mark.parametrize(
    ("preprocessing", "message"),
    [
        ({"warp_size": 20}, "`warp_size` must be that of the cache, 16.* Received: warp_size=20"),
        ({"warp_size": 16, "keep_aspect": True}, "`keep_aspect` must be that of the cache, False"),
        ({"warp_size": 16, "trim_white": True}, "`trim_white` must be that of the cache, False"),
    ],
)
def test_batches_reject_what_the_cache_was_not_made_for(preprocessing, message, written):
    split = pipelines.load("cache", data_dir=written).train
    with pytest.raises(ValueError, match=message):
        pipelines.evaluation_batches(split, SIZE, preprocessing=Preprocessing(**preprocessing))


def test_what_was_trimmed_is_to_be_trimmed_when_served(dataset, tmp_path):
    write(dataset, tmp_path, trim_white=True, images_per_file=100)
    split = pipelines.load("cache", data_dir=tmp_path).train
    with pytest.raises(ValueError, match=r"`warp_size` must be that of the cache, 16.*=None"):
        pipelines.evaluation_batches(split, SIZE)


def test_a_cache_is_of_image_files(written, dataset, tmp_path):
    loaded = pipelines.load("cache", data_dir=written)
    for other in (loaded, pipelines.load("digits")):
        message = f"separate image files. Received: dataset={other.name}"
        with pytest.raises(ValueError, match=message):
            write(other, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"size": 0}, ValueError, "`size` must be >= 1. Received: size=0"),
        ({"size": 1.5}, TypeError, "`size` must be an integer"),
        ({"size": 4097}, ValueError, "`size` must be from 1 to 4096. Received: size=4097"),
        ({"quality": 101}, ValueError, "`quality` must be from 1 to 100. Received: quality=101"),
        ({"quality": 0}, ValueError, "`quality` must be >= 1"),
        ({"images_per_file": 0}, ValueError, "`images_per_file` must be >= 1"),
        ({"keep_aspect": True, "trim_white": True}, ValueError, "leave out `keep_aspect`"),
    ],
)
def test_rejects_settings_out_of_range(options, error, message, dataset, tmp_path):
    with pytest.raises(error, match=message):
        write(dataset, tmp_path / "none", **options)
    assert not (tmp_path / "none").exists()


def test_training_classes_with_a_single_image_are_those_of_the_original(dataset, tmp_path):
    train = dataset.train
    labels = train.labels.copy()
    labels[0] = labels.max() + 1
    train = dataclasses.replace(train, labels=labels)
    write(dataclasses.replace(dataset, train=train), tmp_path, images_per_file=100)
    with pytest.raises(ValueError, match="1 training classes with a single image"):
        pipelines.load("cache", tmp_path)
    with pytest.warns(UserWarning, match="left out 1 training classes"):
        assert (
            len(pipelines.load("cache", tmp_path, skip_invalid=True).train.labels)
            == len(labels) - 1
        )
    assert len(pipelines.load("cache", tmp_path, training=False).train.labels) == len(labels)


def test_the_command_writes_and_verifies(dataset, tmp_path, capsys):
    folder = tmp_path / "photos"
    for label, path in zip(dataset.train.labels, dataset.train.images, strict=True):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        os.symlink(path, folder / str(label) / os.path.basename(path))
    out = tmp_path / "a cache"
    cache.main(["--dataset", "folder", "--data_dir", str(folder), "--out", str(out)])
    printed = capsys.readouterr().out
    assert "16 images, " in printed
    flags = f"--dataset cache --data_dir '{out}' --warp_size 256 --image_size 224"
    assert flags in printed  # to be pasted
    cache.main(["--verify", str(out)])
    assert "is intact" in capsys.readouterr().out
    settings = json.loads((out / "manifest.json").read_text())["settings"]
    assert (settings["quality"], settings["warp_size"]) == (95, 256)
    small = ["--dataset", "folder", "--data_dir", str(folder), "--size", "64"]
    cache.main([*small, "--out", str(tmp_path / "small")])
    assert "--warp_size 64 --image_size 64" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cache.main(["--verify", str(folder)])
    assert "pipelines.cache: error: there is no finished cache in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--dataset must be given, or --verify"),
        (["--dataset", "cub200"], "--out must be given"),
        (
            ["--quality", "90", "--lossless", "--dataset", "x", "--out", "y"],
            "--quality is for JPEG",
        ),
        (["--size", "big"], "argument --size: invalid int value: 'big'"),
        (["--dataset", "cub20", "--out", "y"], "Unknown dataset 'cub20'. Did you mean 'cub200'?"),
    ],
)
def test_the_command_rejects_with_one_sentence(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        cache.main(arguments)
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("pipelines.cache: error: ")
    assert message in line


def test_help_imports_no_heavy_library():
    program = "import sys; from pipelines import cache\ntry: cache.parse(['--help'])\n"
    program += "except SystemExit: pass\nassert not {'tensorflow', 'numpy'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--lossless" in done.stdout


def test_folders_of_the_home_folder_are_taken_and_long_names_rejected(monkeypatch, capsys):
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("USERPROFILE", "/home/ann")
    flags = ["--dataset", "folder", "--data_dir=~/photos", "--boxes=~/b.csv", "--out"]
    given = cache.parse([*flags, "~/c"])
    folders = [given.data_dir, given.boxes, given.out, cache.parse(["--verify", "~/c"]).verify]
    assert folders == [f"/home/ann/{name}" for name in ("photos", "b.csv", "c", "c")]
    with pytest.raises(SystemExit, match="2"):
        cache.main([*flags, "x" * 256])
    assert "must have at most 255 bytes" in capsys.readouterr().err
