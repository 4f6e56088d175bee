import numpy as np

from pipelines.datasets.archive import Archive
from pipelines.datasets.listing import Listing

ARCHIVE = Archive(
    "cub200",
    "CUB-200-2011",
    folder="CUB_200_2011",
    source="CUB_200_2011.tgz of Caltech-UCSD Birds 200-2011 (images.txt, image_class_labels.txt, "
    "classes.txt, bounding_boxes.txt and the folder images)",
)
TRAINED = 100  # classes 1 to 100
COUNTS = {"train": (5864, 100), "test": (5924, 100)}


def load(data_dir=None, skip_invalid=False, training=True, boxes=False):
    """CUB-200-2011: photographs of 200 kinds of birds; the first 100 train, the others test.

    Args:
        data_dir: Folder of the unpacked archive, or its parent.
        boxes: Whether to crop to the birds' boxes, rounded to whole pixels inside the image.

    Source:
        Wah, Branson, Welinder, Perona, Belongie. The Caltech-UCSD Birds-200-2011 dataset.
        CNS-TR-2011-001, Caltech 2011. Split: Song, Xiang, Jegelka, Savarese. CVPR 2016.
    """
    root = ARCHIVE.root(data_dir, ["images.txt"])
    images = ARCHIVE.rows(root / "images.txt", ("#id", "path"))
    ids = [image for image, _ in images]

    def by_image(file, columns):
        rows = ARCHIVE.rows(root / file, ("#id", *columns))
        return np.array(ARCHIVE.by_first(root / file, rows, ids))

    labels = by_image("image_class_labels.txt", ["#class"])[:, 0]
    class_names = dict(ARCHIVE.rows(root / "classes.txt", ("#class", "name")))
    edges = None
    if boxes:
        columns = [".x", ".y", ".width", ".height"]
        left, top, width, height = by_image("bounding_boxes.txt", columns).T
        edges = np.stack([left, top, left + width, top + height], axis=1)
    paths = [str(root / "images" / path) for _, path in images]
    parts = np.where(labels <= TRAINED, "train", "test")
    listing = Listing(paths, labels, class_names, boxes=edges, parts=parts)
    return ARCHIVE.dataset(listing, skip_invalid, training, counts=COUNTS)
