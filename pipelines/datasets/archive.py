"""A published data set as its authors pack it: where its files are, and the lists in them."""

import dataclasses
import pathlib

_KINDS = {"#": int, ".": float}


@dataclasses.dataclass(frozen=True)
class Archive:
    """What an unpacked data set must hold, and where it comes from.

    Args:
        name: Of the dataset, as of `pipelines.load`.
        title: What its authors call it.
        folder: Name of the folder that it unpacks to.
        source: Its files as the authors name them, and who gives them out.
    """

    name: str
    title: str
    folder: str
    source: str

    def given(self, data_dir, what):
        """The folder that the user gives, which must be there.

        Args:
            data_dir: As of `pipelines.load`.
            what: What it is to hold, in words.

        Raises:
            ValueError: If there is none.
            FileNotFoundError: If there is no such folder.
        """
        if data_dir is None:
            raise ValueError(
                f"dataset {self.name!r} needs `data_dir`, the folder with {what}: {self.source}. "
                "Received: data_dir=None"
            )
        folder = pathlib.Path(data_dir).expanduser()
        if not folder.is_dir():
            raise FileNotFoundError(
                f"`data_dir` must be the folder with {what}: {self.source}. There is no {folder}"
            )
        return folder

    def root(self, data_dir, files):
        """The folder with the first of the files that is anywhere: `data_dir`, or `folder` in it.

        Args:
            data_dir: As of `pipelines.load`.
            files: Paths below the folder, any of which tells it.

        Raises:
            ValueError: If there is no `data_dir`.
            FileNotFoundError: If none of the files is there.
        """
        folder = self.given(data_dir, " or ".join(files))
        for root in (folder, folder / self.folder):
            if any((root / file).exists() for file in files):
                return root
        raise self.missing(*(folder / file for file in files))

    def file(self, root, *files):
        """The first of the files below `root` that is there.

        Raises:
            FileNotFoundError: If none is.
        """
        for file in files:
            if (root / file).exists():
                return root / file
        raise self.missing(*(root / file for file in files))

    def missing(self, *paths):
        """The error that says what is missing, and where it comes from."""
        listed = " or ".join(map(str, paths))
        return FileNotFoundError(f"{self.title} must have {listed}. It comes in {self.source}")

    def rows(self, path, columns, skip=0):
        """The lines of a list, cut into their columns.

        Args:
            path: Of the file.
            columns: Names of the columns, with a `#` before that of whole numbers and a `.` before
                that of others. Spaces part them; the last column takes the rest of the line.
            skip: Number of lines before the list.

        Returns:
            List of tuples of strings, integers and floats.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If a line has fewer columns or no number where there must be one, which a
                file that was cut off has; the sentence names the file and the line.
        """
        if not path.is_file():
            raise self.missing(path)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()[skip:]
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} must be a text file ({error.reason})") from error
        rows = []
        for number, line in enumerate(lines, start=skip + 1):
            cells = line.split(maxsplit=len(columns) - 1)
            if not cells:
                continue
            try:
                if len(cells) != len(columns):
                    raise ValueError
                rows.append(
                    tuple(
                        _KINDS.get(column[0], str.rstrip)(cell)
                        for column, cell in zip(columns, cells, strict=True)
                    )
                )
            except ValueError:
                wanted = " ".join(column.lstrip("#.") for column in columns)
                raise ValueError(
                    f"{path}, line {number} must be `{wanted}`; the file comes in {self.source}. "
                    f"Received: {line.strip()!r}"
                ) from None
        if not rows:
            raise ValueError(
                f"{path} must hold a list; the file comes in {self.source}. Received: lines=0"
            )
        return rows

    def by_first(self, path, rows, keys):
        """The rows of a list in the order of `keys`, their first column left out.

        Args:
            path: Of the file of the list, for the error.
            rows: As from `rows`.
            keys: What the first columns must hold.

        Raises:
            ValueError: If a key has no row.
        """
        found = {row[0]: row[1:] for row in rows}
        lost = [key for key in keys if key not in found]
        if lost:
            raise ValueError(
                f"{path} must have a line for every image; the file comes in {self.source}. "
                f"Received: without={len(lost)}, first={lost[0]}"
            )
        return [found[key] for key in keys]
