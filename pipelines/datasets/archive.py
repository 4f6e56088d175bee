"""Finds and reads the files of a published data set as its authors pack it."""

import dataclasses

from pipelines.datasets import given_path
from pipelines.datasets.image_list import checked_dataset
from tfdml.checks import Bare, check
from tfdml.files import read_text

_KINDS = {"#": int, ".": float}


@dataclasses.dataclass(frozen=True)
class Archive:
    """A published data set."""

    name: str  # as for `pipelines.load`
    folder: str  # that it unpacks to
    source: str  # its files, and who distributes them

    def root(self, data_dir, files):
        """The folder that has one of the files: the user's `data_dir`, or `folder` in it."""
        what = f"the folder with {' or '.join(files)}: {self.source}"
        folder = given_path(self.name, data_dir, what)
        for root in (folder, folder / self.folder):
            if any((root / file).exists() for file in files):
                return root
        raise self.missing(*(folder / file for file in files))

    def missing(self, *paths):
        """Returns the error that names the missing files and their source."""
        listed = " or ".join(map(str, paths))
        return FileNotFoundError(f"dataset {self.name!r} must have {listed}. Source: {self.source}")

    def rows(self, path, columns, skip=0):
        """The lines of a list as tuples, after the first `skip`; an error names the line.

        Spaces separate the columns, of whose names a leading `#` marks integers, `.` floats; the
        last takes the rest of the line.
        """
        if not path.is_file():
            raise self.missing(path)
        lines = read_text(path).splitlines()[skip:]
        kinds, rows = [_KINDS.get(column[0], str) for column in columns], []
        for number, line in enumerate(map(str.strip, lines), start=skip + 1):
            cells = line.split(maxsplit=len(columns) - 1)
            try:
                if cells:
                    rows.append(tuple(kind(cell) for kind, cell in zip(kinds, cells, strict=True)))
            except ValueError:
                wanted = " ".join(column.lstrip("#.") for column in columns)
                expected = f"{path}, line {number} must be `{wanted}`; source: {self.source}"
                raise ValueError(f"{expected}. Received: {line!r}") from None
        check(rows, f"{path} must hold a list; source: {self.source}", lines=0)
        return rows

    def parts(self, paths, columns, skip=0):
        """The lines of several lists, {part: path}, and the part of each."""
        lists = {part: self.rows(path, columns, skip) for part, path in paths.items()}
        parts = [part for part, rows in lists.items() for _ in rows]
        return [row for rows in lists.values() for row in rows], parts

    def by_first(self, path, columns, keys, skip=0):
        """The lines of a list in the order of `keys`, their first column, and without it."""
        found = {row[0]: row[1:] for row in self.rows(path, columns, skip)}
        lost = [key for key in keys if key not in found]
        needed = f"{path} must have a line for every image; source: {self.source}"
        check(not lost, needed, without=len(lost), first=Bare(*lost[:1]))
        return [found[key] for key in keys]

    def dataset(self, images, skip_invalid, training, **options):
        """`checked_dataset` of the list; the error of missing images names their source."""
        where = f". Source: {self.source}"
        return checked_dataset(self.name, images, skip_invalid, training, where=where, **options)
