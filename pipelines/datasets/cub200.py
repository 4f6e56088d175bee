import numpy as np

from pipelines.datasets.archive import Archive
from pipelines.datasets.image_list import ImageList

ARCHIVE = Archive(
    "cub200",
    folder="CUB_200_2011",
    source="CUB_200_2011.tgz of Caltech-UCSD Birds 200-2011 (images.txt, image_class_labels.txt, "
    "classes.txt, bounding_boxes.txt and the folder images)",
)
TRAINED = 100  # classes 1 to 100
COUNTS = {"train": (5864, 100), "test": (5924, 100)}


def load(data_dir=None, skip_invalid=False, training=True, boxes=False):
    """CUB-200-2011: photographs of 200 kinds of birds; the first 100 train, the others test.

    `boxes` are rounded to whole pixels inside the image.

    Source:
        Wah, Branson, Welinder, Perona, Belongie. The Caltech-UCSD Birds-200-2011 dataset.
        CNS-TR-2011-001, Caltech 2011. Split: Song, Xiang, Jegelka, Savarese. CVPR 2016.
    """
    root = ARCHIVE.root(data_dir, ["images.txt"])
    ids, paths = zip(*ARCHIVE.rows(root / "images.txt", ("#id", "path")), strict=True)
    labels = ARCHIVE.by_first(root / "image_class_labels.txt", ("#id", "#class"), ids)
    labels = np.array(labels)[:, 0]
    class_names = dict(ARCHIVE.rows(root / "classes.txt", ("#class", "name")))
    edges = None
    if boxes:
        columns = ("#id", ".x", ".y", ".width", ".height")
        edges = np.array(ARCHIVE.by_first(root / "bounding_boxes.txt", columns, ids))
        edges[:, 2:] += edges[:, :2]
    paths = [str(root / "images" / path) for path in paths]
    parts = np.where(labels <= TRAINED, "train", "test")
    images = ImageList(paths, labels, class_names, boxes=edges, parts=parts)
    return ARCHIVE.dataset(images, skip_invalid, training, counts=COUNTS)
