"""Finds the images of a dataset that cannot be read, before a run meets them.

    python -m pipelines.check --dataset cub200 --data_dir CUB_200_2011
    python -m pipelines.check --dataset folder --data_dir photos --boxes boxes.csv

Decodes every image on all cores and prints each one that is missing, cut off or no image, with its
size and the reason; mend or replace these, or leave them out of a run by --skip_invalid true. Files
that can be read are remembered by path, size and modification time in the folder tfdml of
$XDG_CACHE_HOME, or of ~/.cache, so that a second check takes seconds.

Exit status: 0 if all is well, 1 if something was found, 2 if the dataset cannot be listed.
"""

import argparse
import sys
import warnings

import pipelines

PROGRAM = "pipelines.check"


def main(arguments=None):
    given = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        found, images = check(given.dataset, given.data_dir, given.boxes)
    except (ValueError, TypeError, OSError, ImportError) as error:
        fail(error)
    except KeyboardInterrupt:
        print(f"\n{PROGRAM}: stopped. The same command goes on", file=sys.stderr)
        raise SystemExit(130) from None
    for sentence in found:
        print(sentence)
    if found:
        print(f"{len(found):,} found. Mend them, or leave them out of a run by --skip_invalid true")
        raise SystemExit(1)
    print(f"All {images:,} images can be read")


def parse(arguments):
    """What the command line asks for. Imports neither TensorFlow nor NumPy."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {PROGRAM}",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.error = fail
    names = ", ".join(pipelines.names())
    parser.add_argument("--dataset", required=True, help=f"name of the images: {names}")
    parser.add_argument("--data_dir", help="folder of the dataset; of csv also the file")
    parser.add_argument("--boxes", help="`annotated` or a CSV file, as of train.py: checked too")
    return parser.parse_args(arguments)


def fail(message):
    """Prints one sentence to the standard error and exits with code 2."""
    print(f"{PROGRAM}: error: {message}", file=sys.stderr)
    raise SystemExit(2)


def check(name, data_dir=None, boxes=None):
    """Finds what `skip_invalid` would leave out of a dataset.

    Args:
        name: As of `pipelines.load`, of images in files.
        data_dir: As of `pipelines.load`.
        boxes: As of `pipelines.load`; a box outside of its image is an error.

    Returns:
        `(found, images)`: a sentence for each thing found, and the number of images without them.

    Raises:
        ValueError: If the images are not in files of their own, or as of `pipelines.load`.
        OSError: As of `pipelines.load`.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset = pipelines.load(name, data_dir, skip_invalid=True, boxes=boxes)
    split = dataset.both()
    if split.holds_records:
        raise ValueError(f"a cache is checked by python -m pipelines.cache --verify {data_dir}")
    if not split.holds_paths:
        raise ValueError(f"`dataset` must be of image files. Received: dataset={name!r}")

    from pipelines.verification import find_unreadable

    found = []
    for message in (warning.message for warning in caught):
        of_each = getattr(message, "items", None)
        found += [str(message)] if of_each is None else [f"{message.what}: {i}" for i in of_each]
    rest = find_unreadable(split.images)  # of a dataset that `load` does not verify
    found += [f"{split.images[row]} ({reason})" for row, reason in rest.items()]
    return found, len(split.images) - len(rest)


if __name__ == "__main__":
    main()
