"""Writes the hierarchy of Cars196, from the names of its classes, for evaluate.py --hierarchy.

    python tools/cars196_hierarchy.py cars196 makes.csv
    python tools/cars196_hierarchy.py cars196 makes_and_types.csv --types

Each class is below its make, such as Aston Martin, and with --types also below its body type, such
as Coupe, if its name ends in one; makes and types are below the root.
"""

import argparse
import csv
import io
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tfdml.command_line import one_sentence
from tfdml.files import write_text
from tfdml.quiet import keep_printing

ROOT = "car"
MAKES_OF_TWO_WORDS = ("AM General", "Aston Martin", "Land Rover", "Mercedes-Benz", "Rolls-Royce")
TYPES = (
    *("Cab", "Convertible", "Coupe", "Hatchback", "Minivan", "Sedan", "SUV"),
    *("SuperCab", "Van", "Wagon"),
)


def main(arguments=None):
    keep_printing()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="one sub-folder per class")
    parser.add_argument("out", metavar="OUT.csv", type=pathlib.Path, help="must not exist")
    parser.add_argument("--types", action="store_true", help="body types in addition to makes")
    arguments = parser.parse_args(arguments)
    with one_sentence(parser.prog, ValueError, OSError):
        if arguments.out.exists():
            raise FileExistsError(f"{arguments.out} exists: choose another name or delete it")
        names = sorted(path.name for path in arguments.folder.iterdir() if path.is_dir())
        lines = hierarchy_of(names, types=arguments.types)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([("class", "parent"), *lines])
        write_text(arguments.out, text.getvalue())
    above = {parent for _, parent in lines} - {ROOT}
    print(f"{arguments.out}: {len(names)} classes below {len(above)} makes or types")


def hierarchy_of(names, types=False):
    """List of (class or node, parent), from folder names such as `001.Make_Model_Type_Year`."""
    lines = []
    for name in names:
        words = re.fullmatch(r"(?:\d+\.)?(\w+)_\d{4}", name)
        if not words:
            raise ValueError(
                f"a class must be named like 012.Make_Model_Type_2008. Received: {name}"
            )
        words = words[1].split("_")
        lines.append((name, make_of(words)))
        if types and words[-1] in TYPES:
            lines.append((name, "Cab" if words[-1] == "SuperCab" else words[-1]))
    if not lines:
        raise ValueError("there must be a sub-folder per class. Received: classes=0")
    return lines + [(node, ROOT) for node in sorted({parent for _, parent in lines})]


def make_of(words):
    """The make that the words of a class begin with."""
    first_two = words[:2]
    for make in MAKES_OF_TWO_WORDS:
        if first_two == re.split("[ -]", make):
            return make
    return words[0]


if __name__ == "__main__":
    main()
