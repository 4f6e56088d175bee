"""Writes the images of a dataset once, resized, to a few large files that training reads faster.

    python -m pipelines.cache --dataset cub200 --data_dir CUB_200_2011 --out cub_256
    python train.py --dataset cache --data_dir cub_256 --warp_size 256

With --lossless, at 3 bytes a pixel, batches are bit-equal to those of the original files with the
same `warp_size`. JPEG, the default, is smaller and changes the pixels slightly.
"""

import os
import pathlib
import sys

import pipelines
from pipelines.check import CAUGHT, STOPPED, parser_of
from tfdml.command_line import one_sentence
from tfdml.files import check_writable
from tfdml.quiet import import_tensorflow, keep_printing

PROGRAM = "pipelines.cache"


def main(arguments=None):
    keep_printing()
    given = parse(sys.argv[1:] if arguments is None else arguments)
    with one_sentence(PROGRAM, *CAUGHT, stopped=STOPPED):
        import_tensorflow()
        from pipelines import shards

        check_writable(pathlib.Path(given.out))
        skip_invalid = given.skip_invalid == "true"  # as of train.py, which errors advise
        dataset = pipelines.load(
            given.dataset, given.data_dir, skip_invalid, training=False, boxes=given.boxes
        )
        names = ("size", "keep_aspect", "trim_white", "quality")
        options = {name: getattr(given, name) for name in names}
        manifest = shards.write_cache(dataset, given.out, **options)
    size = sum(shard["bytes"] for shard in manifest["shards"]) / 1e6
    images = sum(shard["images"] for shard in manifest["shards"])
    print(f"{images:,} images, {size:,.1f} MB in {len(manifest['shards'])} files: {given.out}")


def parse(arguments):
    """Parses the command line, without importing TensorFlow or NumPy."""
    parser = parser_of(PROGRAM, (__doc__ or "").partition("\n")[0])
    folder = {"type": os.path.expanduser, "required": True}
    parser.add_argument("--out", help="folder of the cache", **folder)
    parser.add_argument("--size", type=int, default=256, help="side of the images in pixels (256)")
    parser.add_argument("--keep_aspect", action="store_true", help="--size is the shorter side")
    parser.add_argument("--trim_white", action="store_true", help="cut off a white border first")
    leave_out = {"nargs": "?", "const": "true", "default": "false", "choices": ("true", "false")}
    parser.add_argument("--skip_invalid", help="leave out invalid images", **leave_out)
    stored = parser.add_mutually_exclusive_group()
    stored.add_argument("--quality", type=int, default=95, help="JPEG quality, 1 to 100 (95)")
    as_they_are = {"action": "store_const", "dest": "quality", "const": None}
    stored.add_argument("--lossless", help="store pixels as they are", **as_they_are)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
