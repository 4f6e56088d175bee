"""Writes the images of a dataset once, resized, to a few large files that training reads faster.

    python -m pipelines.cache --dataset cub200 --data_dir CUB_200_2011 --out cub_256
    python train.py --dataset cache --data_dir cub_256 --warp_size 256
    python -m pipelines.cache --verify cub_256

If stopped or killed, run the same command again: it keeps the finished files and rewrites damaged
ones. With --lossless, batches are bit-equal to those of the original files with the same
`warp_size`, at 3 bytes a pixel; with JPEG, the default, to those of the resized JPEGs.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import io
import json
import os
import pathlib
import shlex
import sys
import tempfile

import pipelines
from tfdml.quiet import import_tensorflow

PROGRAM = "pipelines.cache"
LARGEST = 4096  # side in pixels
SHARD_BYTES = 128e6  # approximate size of a file
BYTES_PER_PIXEL = 0.45  # of a JPEG of quality 95; photographs have 0.3 to 0.6


def main(arguments=None):
    given = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        import_tensorflow()
        if given.verify:
            verify(given.verify)
            print(f"{given.verify} is intact")
            return
        dataset = pipelines.load(
            given.dataset, given.data_dir, given.skip_invalid, training=False, boxes=given.boxes
        )
        manifest = write_cache(
            dataset,
            given.out,
            size=given.size,
            keep_aspect=given.keep_aspect,
            trim_white=given.trim_white,
            quality=None if given.lossless else given.quality,
        )
    except (ValueError, TypeError, OSError, ImportError) as error:
        fail(error)
    except KeyboardInterrupt:
        print(f"\n{PROGRAM}: stopped. Run the same command to continue", file=sys.stderr)
        raise SystemExit(130) from None
    size = sum(shard["bytes"] for shard in manifest["shards"]) / 1e6
    images = sum(shard["images"] for shard in manifest["shards"])
    print(
        f"{images:,} images, {size:,.1f} MB in {len(manifest['shards'])} files: {given.out}\n"
        f"Train on it with: python train.py --dataset cache --data_dir {shlex.quote(given.out)}"
        f"{flags_of(manifest['settings'])}"
    )


def parse(arguments):
    """Parses the command line, without importing TensorFlow or NumPy."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {PROGRAM}",
        description=(__doc__ or "").partition("\n")[0],
        allow_abbrev=False,
    )
    parser.error = fail
    parser.add_argument("--verify", metavar="FOLDER", help="check every byte of a cache and exit")
    parser.add_argument("--dataset", help=f"name of the images: {', '.join(pipelines.names())}")
    parser.add_argument("--data_dir", help="folder of the dataset")
    parser.add_argument("--out", help="folder of the cache")
    parser.add_argument("--size", type=int, default=256, help="side of the images in pixels (256)")
    parser.add_argument("--keep_aspect", action="store_true", help="--size is the shorter side")
    parser.add_argument("--trim_white", action="store_true", help="cut off a white border first")
    parser.add_argument("--boxes", help="`annotated` or a CSV file, as for train.py: crop to these")
    parser.add_argument("--skip_invalid", action="store_true", help="leave out invalid images")
    parser.add_argument("--quality", type=int, help="JPEG quality, 1 to 100 (95)")
    parser.add_argument("--lossless", action="store_true", help="store pixels as they are")
    given = parser.parse_args(arguments)
    for name in ("dataset", "out"):
        if not (getattr(given, name) or given.verify):
            fail(f"--{name} must be given, or --verify")
    if given.lossless and given.quality is not None:
        fail(f"--quality is for JPEG: leave it out with --lossless. Received: {given.quality}")
    given.quality = 95 if given.quality is None else given.quality
    return given


def fail(message):
    """Prints an error message to standard error and exits with code 2."""
    print(f"{PROGRAM}: error: {message}", file=sys.stderr)
    raise SystemExit(2)


def flags_of(settings):
    """The flags of `train.py` that use the images of a cache without resizing."""
    switches = (name for name in ("keep_aspect", "trim_white") if settings[name])
    return "".join([f" --warp_size {settings['warp_size']}", *(f" --{name}" for name in switches)])


def verify(folder):
    """Checks every byte of a cache.

    Args:
        folder: Of the cache.

    Raises:
        FileNotFoundError: If it is unfinished, or files are missing.
        ValueError: If a file has changed since it was written.
    """
    from pipelines.datasets import cache

    folder = pathlib.Path(folder).expanduser()
    cache.check_files(folder, cache.read_manifest(folder), checksums=True)


def write_cache(
    dataset,
    folder,
    *,
    size=256,
    keep_aspect=False,
    trim_white=False,
    quality=95,
    images_per_file=None,
):
    """Writes the images of a dataset to TFRecord files, each image a `tf.train.Example`.

    Each is cut to its box, if it has one, and stored as `Preprocessing(warp_size=size, ...)` makes
    it before the crop, in 8 bits. Complete files of the same images and settings are kept, so an
    interrupted write can be resumed.

    Args:
        dataset: `Dataset` of image files.
        folder: Of the cache; made if it does not exist.
        size: Side of the images in pixels, at most 4,096.
        keep_aspect: Whether `size` applies to the shorter side only.
        trim_white: Whether to cut off a white border first.
        quality: JPEG quality, 1 to 100; None to store the pixels losslessly, as BMP.
        images_per_file: Images in a file; about 128 MB of them if None.

    Returns:
        The manifest, as returned by `pipelines.datasets.cache.read_manifest`.

    Raises:
        TypeError: If a number is not an integer or a switch not a bool.
        ValueError: If a number is out of range, the dataset is not one of image files, or the
            folder has a cache of other images or settings.
        OSError: If an image cannot be read or a file cannot be written; finished files stay.
    """
    from pipelines.datasets.cache import WARP, check_files

    check(dataset, size, quality, images_per_file)
    warp = pipelines.Preprocessing(size, keep_aspect, trim_white)
    folder = pathlib.Path(folder).expanduser()
    settings = {
        "dataset": dataset.name,
        **{name: getattr(warp, name) for name in WARP},
        "quality": quality,
        "boxes": dataset.train.boxes is not None,
        "images_per_file": images_per_file or usual_number(dataset, size, quality),
    }
    images, rows = listed(dataset)
    plan = {"settings": settings, "images": digest_of(images, rows)}
    folder.mkdir(parents=True, exist_ok=True)
    refuse_others(folder, plan)
    shards = write_shards(folder, plan, images, rows, warp, dataset.image_size[2])
    manifest = write_index(folder, plan, shards, rows, dataset)
    check_files(folder, manifest)
    return manifest


def check(dataset, size, quality, images_per_file):
    """Raises a TypeError or ValueError if the dataset cannot be cached with these settings."""
    from pipelines.sampling import check_integers

    check_integers(1, size=size)
    if size > LARGEST:
        raise ValueError(f"`size` must be from 1 to {LARGEST}. Received: size={size}")
    if images_per_file is not None:
        check_integers(1, images_per_file=images_per_file)
    if quality is not None:
        check_integers(1, quality=quality)
        if quality > 100:
            raise ValueError(f"`quality` must be from 1 to 100. Received: quality={quality}")
    for split in dataset.splits.values():
        if not split.holds_paths or split.warped is not None:
            raise ValueError(
                f"a cache needs a dataset of separate image files. Received: dataset={dataset.name}"
            )


def usual_number(dataset, size, quality):
    """The number of images that take about 128 MB."""
    of_pixel = BYTES_PER_PIXEL if quality else dataset.image_size[2]
    return max(1, round(SHARD_BYTES / (of_pixel * size**2)))


def listed(dataset):
    """All images as one `Split`, and {name: (n,) array} of their columns in the index.

    "order" has the rows in the order in which they are written: those of a class adjacent.
    """
    import numpy as np

    from pipelines.datasets.cache import PARTS

    splits = dataset.splits
    images = dataset.both()
    part = np.repeat(
        [PARTS.index(name) for name in splits], [len(split.labels) for split in splits.values()]
    )
    rows = {"part": part.astype(np.int8), "labels": images.labels}
    if images.super_labels is not None:
        rows["super_labels"] = images.super_labels
    rows["order"] = np.lexsort((images.labels, part))
    return images, rows


def digest_of(images, rows):
    """Digest of the images' names, sizes, labels, parts and boxes, to detect other images."""
    import numpy as np

    digest = hashlib.sha256()
    for path in images.images:
        digest.update(f"{path}\0{os.stat(path).st_size}\0".encode())
    for array in (*rows.values(), images.boxes):
        digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def refuse_others(folder, plan):
    """Raises a ValueError if a folder holds a cache of other images or settings."""
    for path in sorted(folder.glob("images-*.json")):
        try:
            before = json.loads(path.read_text())
            settings, images = before["settings"], before["images"]
        except (ValueError, LookupError, TypeError):
            continue  # it is rewritten
        changed = {
            name: value for name, value in plan["settings"].items() if settings.get(name) != value
        }
        if changed or images != plan["images"]:
            what = ", ".join(f"{n}={settings.get(n)}, now {v}" for n, v in changed.items())
            raise ValueError(
                f"{folder} holds a cache of other {'settings' if changed else 'images'}: choose "
                f"another folder, or delete it{f'. It has {what}' if changed else ''}"
            )


def write_shards(folder, plan, images, rows, warp, channels):
    """Writes the missing files; returns the metadata of all files, in order.

    Shows a progress bar if that takes more than two seconds.
    """
    from tqdm import tqdm

    for killed in folder.glob(".unfinished-*"):
        killed.unlink()
    order, number = rows["order"], plan["settings"]["images_per_file"]
    shards = []
    with tqdm(total=len(order), desc="Writing", delay=2, disable=None, unit="image") as bar:
        for first in range(0, len(order), number):
            path = folder / f"images-{first // number:05}.tfrecord"
            chosen = order[first : first + number]
            shard = finished(path, plan)
            if shard is None:
                contents = contents_of(images, chosen, warp, channels, plan["settings"]["quality"])
                shard = write_shard(path, plan, zip(chosen.tolist(), contents, strict=True), images)
            bar.update(len(chosen))
            shards.append(shard)
    return shards


def finished(path, plan):
    """Metadata of a file of the cache; None if the file is missing or incomplete."""
    from pipelines.datasets.cache import sha256_of

    try:
        shard = json.loads(path.with_suffix(".json").read_text())
        same = shard["images"] == plan["images"] and shard["settings"] == plan["settings"]
        whole = path.stat().st_size == shard["bytes"] and sha256_of(path) == shard["sha256"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return shard if same and whole else None


def contents_of(images, chosen, warp, channels, quality):
    """The encoded images of the chosen rows, in order.

    Raises:
        OSError: If an image cannot be read; names it.
    """
    from pipelines.images import named

    with named(images):
        for image in warped_images(images.subset(chosen), warp, channels, quality):
            yield bytes(image) if quality else bmp_of(image)


def warped_images(split, warp, channels, quality):
    """The resized images of a split, as pixels or, with a quality, as JPEG."""
    import numpy as np
    import tensorflow as tf

    from pipelines import images
    from pipelines.batches import part_of

    size = (warp.warp_size, warp.warp_size)
    boxes = np.zeros((len(split.labels), 4), np.int64) if split.boxes is None else split.boxes

    def load(image, box):
        image = images.warp(part_of(split, image, box, channels), size, warp)
        return tf.io.encode_jpeg(image, quality=quality) if quality else image

    rows = tf.data.Dataset.from_tensor_slices((split.images, boxes))
    rows = rows.map(load, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    return rows.as_numpy_iterator()


def bmp_of(image):
    """The bytes of an image as BMP, lossless."""
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image).save(content, "BMP")
    return content.getvalue()


def write_shard(path, plan, rows, images):
    """Writes one file and, next to it, its metadata; returns the metadata.

    Args:
        path: Of the file.
        plan: Settings and digest of the images.
        rows: (row, encoded image) of each of its images.
        images: `Split` that the rows index.
    """
    import tensorflow as tf

    from pipelines.datasets.cache import sha256_of

    offsets, lengths, end = [], [], 0
    with appearing_whole(path) as unfinished:
        try:
            with tf.io.TFRecordWriter(str(unfinished)) as file:
                for row, content in rows:
                    record = example_of(row, content, images).SerializeToString()
                    file.write(record)
                    # A record begins with 12 bytes, its length and their checksum, and ends with 4.
                    offsets.append(end + 12 + record.index(content))
                    lengths.append(len(content))
                    end += 16 + len(record)
        except tf.errors.OpError as error:
            raise OSError(f"{path} cannot be written: {error.message}") from error
        if unfinished.stat().st_size != end:
            raise OSError(f"{path} cannot be written: the disk took only a part of it")
        shard = {
            **plan,
            "bytes": end,
            "sha256": sha256_of(unfinished),
            "offset": offsets,
            "length": lengths,
        }
    write_whole(path.with_suffix(".json"), json.dumps(shard).encode())
    return shard


def example_of(row, content, images):
    """A `tf.train.Example` with the feature names of TensorFlow's own datasets."""
    import tensorflow as tf

    label = int(images.labels[row])
    name = (images.class_names or {}).get(label, str(label))
    values = {
        "image/encoded": content,
        "image/class/text": name.encode(),
        "image/filename": os.fsencode(images.images[row]),
    }
    features = {
        key: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        for key, value in values.items()
    }
    integers = tf.train.Int64List(value=[label])
    features["image/class/label"] = tf.train.Feature(int64_list=integers)
    return tf.train.Example(features=tf.train.Features(feature=features))


def write_index(folder, plan, shards, rows, dataset):
    """Writes the index and, last, the manifest; returns the manifest."""
    import numpy as np

    from pipelines.datasets.cache import FORMAT, INDEX, MANIFEST, sha256_of

    order = rows["order"]
    index = {name: array for name, array in rows.items() if name != "order"}
    counts = [len(shard["length"]) for shard in shards]
    for name, values in (
        ("shard", np.repeat(np.arange(len(shards)), counts)),
        ("offset", np.concatenate([shard["offset"] for shard in shards])),
        ("length", np.concatenate([shard["length"] for shard in shards])),
    ):
        index[name] = np.empty(len(order), np.int64)
        index[name][order] = values
    content = io.BytesIO()
    np.savez_compressed(content, **index)
    (folder / MANIFEST).unlink(missing_ok=True)
    write_whole(folder / INDEX, content.getvalue())
    class_names = dataset.both().class_names or {}
    manifest = {
        "format": FORMAT,
        "settings": plan["settings"],
        "image_size": [int(side) for side in dataset.image_size],
        "augmentation": dataclasses.asdict(dataset.augmentation),
        "class_names": [[int(label), name] for label, name in class_names.items()],
        "index_sha256": sha256_of(folder / INDEX),
        "shards": [
            {
                "name": f"images-{number:05}.tfrecord",
                "images": len(shard["length"]),
                "bytes": shard["bytes"],
                "sha256": shard["sha256"],
            }
            for number, shard in enumerate(shards)
        ],
    }
    write_whole(folder / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())
    return manifest


def write_whole(path, content):
    """Writes a file atomically: whole or not at all."""
    with appearing_whole(path) as unfinished:
        unfinished.write_bytes(content)


@contextlib.contextmanager
def appearing_whole(path):
    """Yields a temporary file, which is renamed to `path` if the block succeeds."""
    handle, unfinished = tempfile.mkstemp(prefix=".unfinished-", dir=path.parent)
    os.close(handle)
    unfinished = pathlib.Path(unfinished)
    try:
        yield unfinished
        unfinished.chmod(0o644)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
