"""Finds changes of a folder since it was indexed, and embeds its new images."""

from tfdml.search.catalogue import Entry, LeftOut
from tfdml.search.images import RejectedError, Stamp, read, read_header

_BATCH_BYTES = 64_000_000  # of files read at once
_NEVER = Stamp(-1, -1)  # matches no file, so that an unreadable one is tried again


def changes(catalogue, files):
    """The changes since a catalogue was made.

    Args:
        catalogue: A `Catalogue`.
        files: {name: `Stamp`} of the present image files.

    Returns:
        The ids of images that are gone, the names of left-out files that are gone or changed, and
        {name: `Stamp`} of new files. A changed image is both gone and new.
    """
    gone = [key for key, entry in catalogue.entries.items() if files.get(entry.name) != entry.stamp]
    cleared = [name for name, why in catalogue.left_out.items() if files.get(name) != why.stamp]
    kept = {entry.name for entry in catalogue.without(gone).entries.values()}
    kept.update(set(catalogue.left_out).difference(cleared))
    return gone, cleared, {name: files[name] for name in files if name not in kept}


def embedded(model, folder, files):
    """Reads and embeds files, batch by batch.

    Args:
        model: A `SearchModel`.
        folder: Path that the names are relative to, resolved.
        files: {name: `Stamp`}.

    Yields:
        For each batch, {name: `LeftOut`, or (`Entry`, row)}, without files that vanished meanwhile.
    """
    done, pending = {}, []
    for name, stamp in files.items():
        try:
            content = read(folder, name, stamp)
            pending.append((Entry(name, stamp, *read_header(content)), content))
        except FileNotFoundError:
            continue
        except RejectedError as error:
            done[name] = LeftOut(stamp, str(error))
        except OSError as error:
            done[name] = LeftOut(_NEVER, error.strerror or str(error))
        size = sum(len(content) for _, content in pending)
        if len(done) + len(pending) >= model.batch_size or size >= _BATCH_BYTES:
            yield done | _embedded_at_once(model, pending)
            done, pending = {}, []
    if done or pending:
        yield done | _embedded_at_once(model, pending)


def _embedded_at_once(model, pending):
    rows = model.embed([content for _, content in pending]) if pending else []
    done = {}
    for (entry, _), row in zip(pending, rows, strict=True):
        rejected = isinstance(row, RejectedError)
        done[entry.name] = LeftOut(entry.stamp, str(row)) if rejected else (entry, row)
    return done
