"""Galleries from a folder of images with a sub-folder for each class."""

from tfdml.checks import check
from tfdml.serving.nearest import MOST_ROWS, Gallery, class_means


def means_of_folder(served, folder):
    """The mean embedding of each class of a folder.

    Args:
        served: `ServedModel`.
        folder: Path of a folder; sub-folders are classes, files in them images.

    Returns:
        A `Gallery` of the classes.

    Raises:
        ValueError: If there are no images, or one cannot be read.
    """
    paths, classes = images_of(folder)
    names = sorted(set(classes))
    rank = {name: row for row, name in enumerate(names)}
    return class_means(served.embed_files(paths), [rank[name] for name in classes], names)


def gallery_of_folder(served, folder):
    """The embedded images of a folder; their ids are their paths relative to it.

    Args:
        served: `ServedModel`.
        folder: Path of a folder; sub-folders are classes, files in them images.

    Returns:
        A `Gallery`.

    Raises:
        ValueError: If there are no images or too many, or one cannot be read.
    """
    paths, classes = images_of(folder)
    # Checked before embedding, which takes long.
    check(
        len(paths) <= MOST_ROWS,
        f"a gallery has at most {MOST_ROWS:,} images; use an index for more",
        folder=str(folder),
        images=len(paths),
    )
    ids = [path.relative_to(folder).as_posix() for path in paths]
    return Gallery(ids, served.embed_files(paths), classes)


def images_of(folder):
    """`(paths, classes)` of the files in the sub-folders of a folder, in sorted order.

    Files and folders whose names begin with a dot are left out.

    Raises:
        ValueError: If there are none.
    """
    paths = [
        path
        for path in sorted(folder.glob("*/*"))
        if path.is_file() and not path.name.startswith(".") and path.parent.name[0] != "."
    ]
    check(paths, "a folder must have sub-folders of images, one per class", folder=str(folder))
    return paths, [path.parent.name for path in paths]
