"""Finds the images of a dataset that cannot be read, before a run meets them.

    python -m pipelines.check --dataset cub200 --data_dir CUB_200_2011
    python -m pipelines.check --dataset folder --data_dir photos --boxes boxes.csv
    python -m pipelines.check --dataset folder --data_dir photos --duplicates twice.csv

Decodes every image on all cores and prints each one that is missing, cut off or not an image, with
its size and the reason. Repair or replace these, or leave them out of a run with
--skip_invalid true. Readable files are remembered by path, size and modification time in the folder
tfdml of $XDG_CACHE_HOME, or of ~/.cache, so a second check takes seconds.

--duplicates also looks for images that are there twice, as the same file, encoded anew, resized or
mirrored, and for tiny, very long and plain ones, and writes them to a CSV file, with the columns
path,finding,score,suggestion,other, which --exclude of train.py and evaluate.py reads.

Exit status: 0 if nothing is found; 1 if something is found that --skip_invalid would leave out, as
an image that cannot be read or a training class with a single image; 2 if the dataset cannot be
listed.
"""

import argparse
import functools
import os
import pathlib
import warnings

import pipelines
from pipelines.invalid import Invalid
from tfdml.command_line import fail, one_sentence
from tfdml.files import check_file
from tfdml.quiet import keep_printing

PROGRAM = "pipelines.check"
CAUGHT = (ValueError, TypeError, OSError, ImportError)  # whose message is for the user
STOPPED = "stopped: run the same command again"


def main(arguments=None):
    keep_printing()
    parser = parser_of(PROGRAM, __doc__)
    explained = "CSV file for images that are there twice and odd ones"
    parser.add_argument("--duplicates", type=os.path.expanduser, metavar="FILE", help=explained)
    given = parser.parse_args(arguments)
    with one_sentence(PROGRAM, *CAUGHT, stopped=STOPPED):
        if given.duplicates:
            check_file(duplicates=pathlib.Path(given.duplicates))
        found, split = check(given.dataset, given.data_dir, given.boxes)
        if given.duplicates and split:
            from pipelines.duplicates import write_duplicates  # imports SciPy

            print(write_duplicates(split.images, given.data_dir, given.duplicates))
    for sentence in found:
        print(sentence)
    if found or split is None:
        print("Repair what was found, or skip it with --skip_invalid true")
        raise SystemExit(1)
    print(f"All {len(split.labels):,} images can be read")


def parser_of(program, description):
    """A parser of the flags that name images, without importing TensorFlow or NumPy."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.error = functools.partial(fail, program)
    names = ", ".join(pipelines.names())
    parser.add_argument("--dataset", required=True, help=f"name of the images: {names}")
    explained = "folder of the dataset; for csv also the file"
    parser.add_argument("--data_dir", type=os.path.expanduser, help=explained)
    explained = "`annotated` or a CSV file, as for train.py: crop to these"
    parser.add_argument("--boxes", type=os.path.expanduser, help=explained)
    return parser


def check(name, data_dir=None, boxes=None):
    """What `skip_invalid` would leave out, with why the rest is no dataset; the `Split` left."""
    rest, split = [], None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", Invalid)
        try:
            split = pipelines.load(name, data_dir, skip_invalid=True, boxes=boxes).both()
        except ValueError as error:
            if not any(isinstance(warning.message, Invalid) for warning in caught):
                raise
            rest = [f"without these too little is left: {error}"]
    invalid = [each.message for each in caught if isinstance(each.message, Invalid)]
    for other in caught:  # such as files that are no images
        if other.message not in invalid:
            warnings.warn(other.message, stacklevel=2)
    found = [f"{each.what}: {item}" for each in invalid for item in each.items]
    if split and (split.holds_records or not split.holds_paths):
        raise ValueError(f"`dataset` must be of image files. Received: dataset={name!r}")
    return found + rest, split


if __name__ == "__main__":
    main()
