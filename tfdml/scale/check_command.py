"""The command `check` of `python -m tfdml.scale`."""

import dataclasses
from typing import ClassVar

from tfdml.command_line import Parser, fail, one_sentence
from tfdml.progress import progress

PROGRAM = "tfdml.scale check"


@dataclasses.dataclass(frozen=True)
class Check:
    """Collection to check.

    Args:
        folder: Folder that `python -m tfdml.scale embed` wrote, with its index, if it has one.
    """

    paths: ClassVar = ("folder",)

    folder: str


def main(arguments=None):
    parser = Parser(Check, prog=PROGRAM, description=damaged_files.__doc__)
    settings = parser.settings_of(parser.parse_args(arguments))
    with one_sentence(PROGRAM, ValueError, TypeError, OSError, ImportError):
        files, unknown, damaged = damaged_files(settings.folder)
    for sentence in damaged:
        print(sentence)
    if damaged:
        fail(PROGRAM, f"{len(damaged):,} of {files:,} files are missing or damaged", code=1)
    print(f"All {files - unknown:,} files with a checksum are whole: {settings.folder}")
    if unknown:
        print(f"{unknown:,} files of an earlier version have no checksum")


def damaged_files(folder):
    """Reads all files of a collection and of its index, and names those that are damaged.

    Returns:
        Their number, the number of those without a checksum, and a sentence for each that is
        missing or damaged.
    """
    from tfdml.scale.collection import Collection
    from tfdml.scale.index import FOLDER, about_of, checked_files

    collection, damaged, unknown = Collection(folder), [], 0
    index = collection.folder / FOLDER
    files = list(collection.files())
    if index.exists():
        files += checked_files(index, about_of(index)).values()
    for file in progress("Checking", files, unit="file"):
        unknown += not file.known
        try:
            file.check()
        except (ValueError, OSError) as error:
            damaged.append(str(error))
    return len(files), unknown, damaged
