import numpy as np

from pipelines.datasets import given_path
from pipelines.datasets.image_list import WORDS, ImageList, checked_dataset, first_half, parts_of
from pipelines.invalid import first_five, leave_out
from pipelines.preprocessing import Augmentation
from tfdml.checks import check
from tfdml.images.image_files import SUFFIXES, class_folders, is_image
from tfdml.quiet import warn


def load(data_dir=None, skip_invalid=False, training=True):
    """A folder of images with one sub-folder per class.

    The first half of the classes in sorted order (rounded down) is for training, the rest for
    testing; below folders named by `WORDS`, such as train and test, these parts if their classes
    differ. A sub-folder without images of its own has classes in it, named by both, and is their
    super-class. Hidden files are ignored; files without a suffix of `SUFFIXES` and folders inside a
    class folder are ignored with a warning. Images are only read with `skip_invalid`.
    """
    classes = _find_classes(data_dir)
    empty = [name for name, paths in classes.items() if not paths]
    leave_out("sub-folders without images", empty, skip_invalid)
    found = [(name.split("/"), path) for name, paths in classes.items() for path in paths]
    words = [first for (first, *inner), _ in found if first in WORDS and inner]
    if len(words) == len(found):
        found = [(inner, path) for (_, *inner), path in found]
    above, names = (["/".join(name[:end]) for name, _ in found] for end in (-1, None))
    names, labels = np.unique(names, return_inverse=True)
    supers = np.unique(above, return_inverse=True)[1] if any(above) else None
    parts = parts_of(words, labels) if len(words) == len(found) else first_half(labels)
    paths = [str(path) for _, path in found]
    images = ImageList(paths, labels, dict(enumerate(names.tolist())), supers, parts=parts)
    images = images.subset(np.argsort(labels, kind="stable"))
    augmentation = Augmentation(crop=0.5, aspect=4 / 3, flip=True)
    defaults = {"image_size": (112, 112, 3), "augmentation": augmentation}
    return checked_dataset("folder", images, skip_invalid, training, **defaults)


def _find_classes(data_dir):
    """{name of a sub-folder: paths of its images}."""
    what = "a folder with one sub-folder of images per class"
    folder = given_path("folder", data_dir, what)
    check(folder.is_dir(), f"`data_dir` must be {what}", data_dir=str(folder))
    classes, ignored = {}, []
    for name, paths in _classes_below(folder).items():
        classes[name] = list(filter(is_image, paths))
        ignored += [f"{name}/{path.name}" for path in paths if not is_image(path)]
    if ignored:
        others = f"ignored {len(ignored)} files and folders that do not end in"
        warn(f"{others} {', '.join(SUFFIXES)}: {first_five(ignored)}")
    with_images = sum(map(bool, classes.values()))
    halves = "4 or more to train: the first half is trained on, the others are scored"
    needed = f"{folder} must have 2 or more sub-folders with images ({', '.join(SUFFIXES)}), one "
    needed += f"per class, and {halves}"
    check(with_images >= 2, needed, sub_folders=len(classes), with_images=with_images)
    return classes


def _classes_below(folder, before=""):
    """{path of a class below a folder: paths in it}, also of folders of such folders alone."""
    found = {}
    for name, paths in class_folders(folder).items():
        if any(map(is_image, paths)) or not any(path.is_dir() for path in paths):
            found[before + name] = paths
        else:
            found |= _classes_below(folder / name, f"{before}{name}/")
    return found
