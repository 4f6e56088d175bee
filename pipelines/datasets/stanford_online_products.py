from pipelines.datasets.archive import Archive
from pipelines.datasets.image_list import ImageList

ARCHIVE = Archive(
    "stanford_online_products",
    folder="Stanford_Online_Products",
    source="Stanford_Online_Products.zip of Stanford's CVGL (Ebay_train.txt, Ebay_test.txt and "
    "twelve folders such as bicycle_final)",
)
COUNTS = {"train": (59551, 11318), "test": (60502, 11316)}


def load(data_dir=None, skip_invalid=False, training=True):
    """Stanford Online Products: photographs of 22,634 products, half to train and half to test.

    The twelve kinds of products, such as bicycles, are the super-classes. 2 to 12 images each.
    `data_dir` is the folder of the unpacked archive, or its parent.

    Source:
        Song, Xiang, Jegelka, Savarese. CVPR 2016.
    """
    root = ARCHIVE.root(data_dir, ["Ebay_train.txt", "Ebay_test.txt"])
    columns = ("#image_id", "#class_id", "#super_class_id", "path")
    lists = {part: root / f"Ebay_{part}.txt" for part in ("train", "test")}
    rows, parts = ARCHIVE.parts(lists, columns, skip=1)
    _, labels, super_labels, paths = zip(*rows, strict=True)
    paths = [str(root / path) for path in paths]
    images = ImageList(paths, labels, super_labels=super_labels, parts=parts)
    return ARCHIVE.dataset(images, skip_invalid, training, counts=COUNTS)
