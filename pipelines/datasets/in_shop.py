import numpy as np

from pipelines.datasets.archive import Archive
from pipelines.datasets.listing import Listing, numbered

ARCHIVE = Archive(
    "in_shop",
    "In-shop Clothes Retrieval",
    folder="In-shop Clothes Retrieval Benchmark",
    source="the In-shop Clothes Retrieval Benchmark of DeepFashion "
    "(Eval/list_eval_partition.txt, Anno/list_bbox_inshop.txt and Img/img.zip)",
)
COUNTS = {"train": (25882, 3997), "test": (14218, 3985), "gallery": (12612, 3985)}
PARTS = {"train": "train", "query": "test", "gallery": "gallery"}


def load(data_dir=None, skip_invalid=False, training=True, boxes=False):
    """In-shop Clothes Retrieval: 52,712 photographs of 7,982 items of clothing.

    3,997 items are for training; the photographs of the other 3,985 are queries (`test`) or gallery
    (`gallery`). The super-classes are the 23 kinds of clothes, such as WOMEN/Dresses, by the folder
    of an item's first image.

    Args:
        data_dir: Folder of the benchmark, with the folders `Eval`, `Anno` and `Img` or their
            contents. Unpack the `img.zip` of 256 x 256 pixels, which the boxes refer to.
        boxes: Whether to crop to the boxes of the clothes, clipped to the image.

    Source:
        Liu, Luo, Qiu, Wang, Tang. DeepFashion: powering robust clothes recognition and retrieval
        with rich annotations. CVPR 2016.
    """
    lists = ["Eval/list_eval_partition.txt", "list_eval_partition.txt"]
    root = ARCHIVE.root(data_dir, lists)
    partition = ARCHIVE.file(root, *lists)
    rows = ARCHIVE.rows(partition, ("image_name", "item_id", "evaluation_status"), skip=2)
    images, items, words = zip(*rows, strict=True)
    unknown = sorted(set(words).difference(PARTS))
    if unknown:
        wanted = f"{' or '.join(PARTS)} for every image"
        raise ValueError(f"{partition} must give {wanted}. Received: {unknown[0]!r}")
    folder = ARCHIVE.file(root, "img", "Img/img").parent
    labels, class_names = numbered(items)
    paths, parts = [str(folder / image) for image in images], [PARTS[word] for word in words]
    kinds, edges = _kinds(images, labels), _boxes(root, images) if boxes else None
    listing = Listing(paths, labels, class_names, kinds, edges, parts=parts)
    return ARCHIVE.dataset(listing, skip_invalid, training, counts=COUNTS)


def _kinds(images, labels):
    """(n,) ids of the kinds of clothes, one for all images of an item."""
    kinds, _ = numbered(["/".join(image.split("/")[1:3]) for image in images])
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return kinds[first][inverse]


def _boxes(root, images):
    path = ARCHIVE.file(root, "Anno/list_bbox_inshop.txt", "list_bbox_inshop.txt")
    columns = ("image_name", "#clothes_type", "#pose_type", "#x_1", "#y_1", "#x_2", "#y_2")
    return np.array(ARCHIVE.by_first(path, ARCHIVE.rows(path, columns, skip=2), images))[:, 2:]
