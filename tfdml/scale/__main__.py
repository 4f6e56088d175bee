"""Embeds and indexes image collections that do not fit in the memory of one machine.

    python -m tfdml.scale embed --model saved_models/NAME/1 --images photos --out embeddings
    python -m tfdml.scale index embeddings --factory IVF4096,SQ8
    python -m tfdml.scale check embeddings

embed   writes the embeddings of a collection to a folder of Parquet files
index   builds an index of them, on disk
check   reads all of these files and names those that are damaged

Each has --help. docs/scale.md describes the files.
"""

import importlib

from tfdml.command_line import command_of
from tfdml.quiet import keep_printing

PROGRAM = "tfdml.scale"
COMMANDS = {
    "embed": "tfdml.scale.embed",
    "index": "tfdml.scale.index_command",
    "check": "tfdml.scale.check_command",
}


def main(arguments=None):
    keep_printing()
    command, arguments = command_of(PROGRAM, __doc__, COMMANDS, arguments)
    importlib.import_module(COMMANDS[command]).main(arguments)


if __name__ == "__main__":
    main()
