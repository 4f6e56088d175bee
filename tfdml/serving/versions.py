"""The numbered versions of a served model: folders 1, 2, ... of one folder, each a SavedModel."""


def versions_of(folder):
    """The versions in a folder, by their number: {number: path}."""
    found = folder.glob("[0-9]*")
    return {int(p.name): p for p in found if p.name.isdigit() and (p / "saved_model.pb").is_file()}


def newest_version(folder):
    """The version of the highest number.

    Raises:
        FileNotFoundError: If there is none.
    """
    versions = versions_of(folder)
    if not versions:
        raise FileNotFoundError(
            f"no SavedModel at {folder}: expected saved_model.pb or folders named 1, 2, ... there"
        )
    return versions[max(versions)]


def megabytes(version):
    """Size of all files of a version, in MB."""
    return sum(file.stat().st_size for file in version.rglob("*") if file.is_file()) / 1e6
