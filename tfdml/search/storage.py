"""Saves and loads an index: rows, catalogue and fingerprint of the model, in one archive."""

import json
import os
import pathlib
import zipfile

import numpy as np

from tfdml.checks import check
from tfdml.files import replacing
from tfdml.search.catalogue import Catalogue
from tfdml.search.index import Index

_FORMAT = 1


def save(path, index, catalogue, fingerprint):
    """Writes an index atomically: a crash leaves the old file or the new one.

    Args:
        path: The file; its folder is made if it does not exist.
        index: An `Index`.
        catalogue: Its `Catalogue`.
        fingerprint: Of the model that made the rows.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    about = json.dumps({"format": _FORMAT, "fingerprint": fingerprint})
    texts = {"about": about, "catalogue": catalogue.to_json()}
    arrays = {name: np.frombuffer(text.encode(), np.uint8) for name, text in texts.items()}
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    with replacing(path, unfinished), open(unfinished, "wb") as file:
        np.savez(file, rows=index.to_bytes(), **arrays)
        file.flush()
        os.fsync(file.fileno())


def load(path, fingerprint, *, approximate=False):
    """Reads an index that this model made.

    Args:
        path: The file.
        fingerprint: Of the model.
        approximate: As for `Index`.

    Returns:
        The `Index` and its `Catalogue`.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If another model made it, or it cannot be read.
    """
    about, rows, text = _read(path)
    check(
        about["fingerprint"] == fingerprint,
        f"{path} must have been made by this model: give another --index, or remove it",
        model=fingerprint[:12],
        made_by=about["fingerprint"][:12],
    )
    index, catalogue = Index.from_bytes(rows, approximate=approximate), Catalogue.from_json(text)
    check(
        len(index) == len(catalogue.entries),
        f"{path} must have as many rows as images: remove it",
        rows=len(index),
        images=len(catalogue.entries),
    )
    return index, catalogue


def _read(path):
    """The description, rows and catalogue of an archive."""
    try:
        with np.load(path) as archive:
            about = json.loads(archive["about"].tobytes())
            if about["format"] != _FORMAT or not isinstance(about["fingerprint"], str):
                raise ValueError("another format")
            return about, archive["rows"], archive["catalogue"].tobytes()
    except FileNotFoundError:
        raise
    except (  # an array instead of an archive raises an AttributeError on Python 3.10
        *(OSError, ValueError, TypeError, AttributeError, LookupError, EOFError),
        zipfile.BadZipFile,
    ) as error:
        raise ValueError(f"{path} is not the index of a search: give another --index") from error
