import numpy as np

from pipelines.datasets.archive import Archive
from pipelines.datasets.image_list import ImageList, numbered
from tfdml.checks import check

ARCHIVE = Archive(
    "in_shop",
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

    `data_dir` has the folders `Eval`, `Anno` and `Img`. Unpack the `img.zip` of 256 x 256 pixels in
    `Img`, which the boxes refer to; these are clipped to the image.

    Source:
        Liu, Luo, Qiu, Wang, Tang. DeepFashion: powering robust clothes recognition and retrieval
        with rich annotations. CVPR 2016.
    """
    root = ARCHIVE.root(data_dir, ["Eval/list_eval_partition.txt"])
    partition = root / "Eval/list_eval_partition.txt"
    rows = ARCHIVE.rows(partition, ("image_name", "item_id", "evaluation_status"), skip=2)
    images, items, words = zip(*rows, strict=True)
    unknown = sorted(set(words).difference(PARTS))
    expected = f"{partition} must have one of {', '.join(PARTS)} for every image"
    check(not unknown, expected, unknown=unknown[:1])
    labels, class_names = numbered(items)
    paths, parts = [str(root / "Img" / image) for image in images], [PARTS[word] for word in words]
    kinds, _ = numbered(["/".join(image.split("/")[1:3]) for image in images])
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    edges = None
    if boxes:
        path = root / "Anno/list_bbox_inshop.txt"
        columns = ("image_name", "#clothes_type", "#pose_type", "#x_1", "#y_1", "#x_2", "#y_2")
        edges = np.array(ARCHIVE.by_first(path, columns, images, skip=2))[:, 2:]
    listed = ImageList(paths, labels, class_names, kinds[first][inverse], edges, parts=parts)
    return ARCHIVE.dataset(listed, skip_invalid, training, counts=COUNTS)
