"""Image files of a folder, listed alike for training, exports, the client and the search."""

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")


def class_folders(folder):
    """The sub-folders of a folder, which are classes, with what is in them.

    Hidden files and folders are left out.

    Args:
        folder: Its `pathlib.Path`.

    Returns:
        {name of a sub-folder: paths in it}, both sorted.
    """
    return {
        sub_folder.name: sorted(shown(sub_folder))
        for sub_folder in sorted(shown(folder))
        if sub_folder.is_dir()
    }


def shown(folder):
    """The paths in a folder, without hidden ones."""
    return (path for path in folder.iterdir() if not path.name.startswith("."))


def is_image(path):
    """Whether the name of a file has the suffix of an image."""
    return path.suffix.lower() in SUFFIXES
