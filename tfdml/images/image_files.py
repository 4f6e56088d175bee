"""Image files of a folder, listed alike for training, exports, the client and the search."""

# Of what TensorFlow does not decode, but Pillow, for HEIC with pillow-heif.
CONVERTED = (".avif", ".heic", ".heif", ".tif", ".tiff")
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp", *CONVERTED)
# Of an image that is read: those of a JPEG that TensorFlow decodes, below 2**29 bytes; 0.5 GB.
MAX_PIXELS = 2**29 // 3


def class_folders(folder):
    """{name of a sub-folder, which is a class: paths in it}, both sorted, without hidden ones."""
    return {
        sub_folder.name: sorted(shown(sub_folder))
        for sub_folder in sorted(shown(folder))
        if sub_folder.is_dir()
    }


def shown(folder):
    """The paths in a folder, without hidden ones."""
    return (path for path in folder.iterdir() if not is_hidden(path.relative_to(folder)))


def is_hidden(path):
    """Whether a part of a relative path begins with a dot."""
    return any(part.startswith(".") for part in path.parts)


def is_utf8(path):
    """Whether the text of a path is valid UTF-8, as TensorFlow needs it."""
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


def is_image(path):
    """Whether the name of a file has the suffix of an image."""
    return path.suffix.lower() in SUFFIXES
