import numpy as np
from scipy.io import loadmat

from pipelines.datasets.archive import Archive
from pipelines.datasets.image_list import ImageList

ARCHIVE = Archive(
    "cars196",
    folder="stanford_cars",
    source="car_ims.tgz and cars_annos.mat, or cars_train.tgz, cars_test.tgz, car_devkit.tgz and "
    "cars_test_annos_withlabels.mat, of Stanford's Cars dataset",
)
TRAINED = 98  # classes 1 to 98
COUNTS = {"train": (8054, 98), "test": (8131, 98)}
EDGES = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")


def load(data_dir=None, skip_invalid=False, training=True, boxes=False):
    """Cars196: photographs of 196 models of cars; the first 98 train, the others test.

    The authors' training and test images of a classifier, which share classes, are merged before
    the classes are split.

    `data_dir` has `cars_annos.mat` and `car_ims`, or `cars_train`, `cars_test`, `devkit` and
    `cars_test_annos_withlabels.mat`. Boxes are clipped to the image.

    Source:
        Krause, Stark, Deng, Fei-Fei. 3D object representations for fine-grained categorization.
        3dRR 2013. Split: Song, Xiang, Jegelka, Savarese. CVPR 2016.
        Boxes as in the released code of HDC (Yuan, Yang, Zhang. ICCV 2017): x1 and y1 are read as
        counted from 0, although MATLAB counts from 1.
    """
    root = ARCHIVE.root(data_dir, ["cars_annos.mat", "devkit"])
    if (root / "cars_annos.mat").exists():
        names = root / "cars_annos.mat"
        sources = [(names, "relative_im_path", root)]
    else:
        names, train = root / "devkit/cars_meta.mat", root / "devkit/cars_train_annos.mat"
        test = root / "cars_test_annos_withlabels.mat"
        sources = [(train, "fname", root / "cars_train"), (test, "fname", root / "cars_test")]
    paths, rows = [], []
    for path, image, folder in sources:
        annotations = _read(path, "annotations", (image, "class", *EDGES))
        paths += [str(folder / name) for name in annotations[image]]
        numbers = [annotations[name].astype(np.float64) for name in ("class", *EDGES)]
        rows.append(np.stack(numbers, axis=1))
    labels, edges = np.split(np.concatenate(rows), [1], axis=1)
    labels = labels[:, 0].astype(np.int64)
    class_names = dict(enumerate(map(str, _read(names, "class_names")), start=1))
    parts = np.where(labels <= TRAINED, "train", "test")
    edges = edges if boxes else None
    images = ImageList(paths, labels, class_names, boxes=edges, parts=parts)
    return ARCHIVE.dataset(images, skip_invalid, training, counts=COUNTS)


def _read(path, variable, fields=()):
    """(n,) array of a variable of a MATLAB file, or {field: (n,) array} of its structures."""
    if not path.is_file():
        raise ARCHIVE.missing(path)
    try:
        array = np.atleast_1d(loadmat(path, squeeze_me=True, variable_names=[variable])[variable])
        return {field: array[field] for field in fields} or array
    except Exception as error:  # what a broken MATLAB file raises has no common class
        cause = f"{path} cannot be read ({error}): it is cut off or not the MATLAB file"
        raise ValueError(f"{cause}. Source: {ARCHIVE.source}") from error
