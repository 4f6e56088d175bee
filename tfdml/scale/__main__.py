"""Embeds and indexes image collections that do not fit in the memory of one machine.

    python -m tfdml.scale embed --model saved_models/NAME/1 --images photos --out embeddings
    python -m tfdml.scale index embeddings --factory IVF4096,SQ8

embed   writes the embeddings of a collection to a folder of Parquet files
index   builds an index of them, on disk

Each has --help. docs/scale.md describes the files.
"""

import importlib
import sys

from tfdml.checks import unknown_name
from tfdml.command_line import fail

PROGRAM = "tfdml.scale"
COMMANDS = {"embed": "tfdml.scale.embed", "index": "tfdml.scale.index_command"}


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    command = arguments[0] if arguments else "--help"
    if command in ("--help", "-h"):
        print((__doc__ or "").strip())
        return
    if command not in COMMANDS:
        fail(PROGRAM, unknown_name("command", command, COMMANDS))
    importlib.import_module(COMMANDS[command]).main(arguments[1:])


if __name__ == "__main__":
    main()
