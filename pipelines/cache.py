"""Writes the images of a dataset once, resized, to a few large files that training reads faster.

    python -m pipelines.cache --dataset cub200 --data_dir CUB_200_2011 --out cub_256
    python train.py --dataset cache --data_dir cub_256 --warp_size 256
    python -m pipelines.cache --verify cub_256

If stopped or killed, run the same command again: it keeps the finished files and rewrites damaged
ones. With --lossless, at 3 bytes a pixel, batches are bit-equal to those of the original files with
the same `warp_size`. JPEG, the default, is smaller and changes the pixels slightly.
"""

import os
import pathlib
import shlex
import sys

import pipelines
from pipelines.check import CAUGHT, STOPPED, parser_of
from tfdml.command_line import one_sentence, program_call
from tfdml.files import check_writable
from tfdml.quiet import import_tensorflow, keep_printing

PROGRAM = "pipelines.cache"


def main(arguments=None):
    keep_printing()
    given = parse(sys.argv[1:] if arguments is None else arguments)
    with one_sentence(PROGRAM, *CAUGHT, stopped=STOPPED):
        import_tensorflow()
        from pipelines import shards

        if given.verify:
            shards.verify(given.verify)
            print(f"{given.verify} is intact")
            return
        names = ("size", "keep_aspect", "trim_white", "quality")
        options = {name: getattr(given, name) for name in names}
        shards.stored_preprocessing(**options)  # rejects options before it reads the images
        check_writable(pathlib.Path(given.out))
        skip_invalid = given.skip_invalid == "true"  # as of train.py, which errors advise
        dataset = pipelines.load(
            given.dataset, given.data_dir, skip_invalid, training=False, boxes=given.boxes
        )
        manifest = shards.write_cache(dataset, given.out, **options)
    size = sum(shard["bytes"] for shard in manifest["shards"]) / 1e6
    images = sum(shard["images"] for shard in manifest["shards"])
    print(
        f"{images:,} images, {size:,.1f} MB in {len(manifest['shards'])} files: {given.out}\n"
        f"Train on it with: {program_call('train')} --dataset cache "
        f"--data_dir {shlex.quote(given.out)}{_training_flags(manifest)}"
    )


def parse(arguments):
    """Parses the command line, without importing TensorFlow or NumPy."""
    parser = parser_of(PROGRAM, (__doc__ or "").partition("\n")[0])
    explained = "check every byte of a cache and exit"
    parser.add_argument("--verify", type=os.path.expanduser, metavar="FOLDER", help=explained)
    parser.add_argument("--out", type=os.path.expanduser, help="folder of the cache")
    parser.add_argument("--size", type=int, default=256, help="side of the images in pixels (256)")
    parser.add_argument("--keep_aspect", action="store_true", help="--size is the shorter side")
    parser.add_argument("--trim_white", action="store_true", help="cut off a white border first")
    leave_out = {"nargs": "?", "const": "true", "default": "false", "choices": ("true", "false")}
    parser.add_argument("--skip_invalid", help="leave out invalid images", **leave_out)
    parser.add_argument("--quality", type=int, help="JPEG quality, 1 to 100 (95)")
    parser.add_argument("--lossless", action="store_true", help="store pixels as they are")
    given = parser.parse_args(arguments)
    for name in ("dataset", "out"):
        if not (getattr(given, name) or given.verify):
            parser.error(f"--{name} must be given, or --verify")
    if given.lossless and given.quality is not None:
        for_jpeg = "--quality is for JPEG: leave it out with --lossless"
        parser.error(f"{for_jpeg}. Received: {given.quality}")
    if given.quality is None and not given.lossless:
        given.quality = 95
    return given


def _training_flags(manifest):
    """The flags of `train.py` that use the images of a cache as they are stored."""
    settings, sides = manifest["settings"], manifest["image_size"][:2]
    side = settings["warp_size"]
    flags = [f"warp_size {side}"]
    crop = side * 7 // 8  # 224 of 256, as in the papers
    if not crop <= max(sides) <= side:
        flags += [f"image_size {side if side < max(sides) else crop}"]
    flags += [name for name in ("keep_aspect", "trim_white") if settings[name]]
    return "".join(f" --{flag}" for flag in flags)


if __name__ == "__main__":
    main()
