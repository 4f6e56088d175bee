import dataclasses
import os
import re

import numpy as np

from pipelines.datasets.archive import Archive
from pipelines.datasets.image_list import ImageList
from pipelines.invalid import leave_out
from tfdml.checks import check

SUFFIXES = (".jpeg", ".jpg", ".png")
SYNSETS = {"imagenet2010": (1000, 800), "imagenet10k": (10184, 1000)}  # all, and the training ones
LIST = "train_synsets.txt"
ARCHIVE = Archive(
    "imagenet",
    folder="ImageNet2010",
    source="the archives of the synsets, such as n01440764.tar, each unpacked to a folder of its "
    f"name, and {LIST}, the names of those that train, one a line",
)


def load(data_dir=None, skip_invalid=False, training=True, *, name="imagenet2010"):
    """ImageNet 2010 or ImageNet-10K: a folder of photographs for each synset of WordNet.

    ImageNet 2010 has 1,000 synsets: 800 to train and 200 to test, for zero-shot learning.
    ImageNet-10K has 10,184: 1,000 to train, in the papers those of ImageNet 2010, and all others to
    test, for transfer.

    `data_dir` has the folders of the synsets, such as `n01440764`, and the file `train_synsets.txt`
    with the names of those that train, one a line. Images are only looked at beforehand with
    `skip_invalid`.

    Source:
        Deng, Dong, Socher, Li, Li, Fei-Fei. ImageNet: a large-scale hierarchical image database.
        CVPR 2009. Splits: Rohrbach, Stark, Schiele. CVPR 2011; Mensink, Verbeek, Perronnin, Csurka.
        PAMI 2013.
        Differs: ImageNet-10K tests on the synsets not trained on; the papers test on all.
    """
    archive = dataclasses.replace(ARCHIVE, name=name)
    root = archive.root(data_dir, [LIST])
    found = _synsets(root)
    empty = sorted(synset for synset in found if not found[synset])
    leave_out("folders without images", empty, skip_invalid)
    synsets = sorted(set(found).difference(empty))
    total, trained = SYNSETS[name]
    chosen = {synset for (synset,) in archive.rows(root / LIST, ("synset",))}
    unknown = sorted(chosen.difference(found))
    expected = f"{root / LIST} must name existing folders"
    check(not unknown, expected, unknown=len(unknown), first=unknown[:1])
    counts = [len(found[synset]) for synset in synsets]
    paths = [path for synset in synsets for path in found[synset]]
    labels = np.repeat(np.arange(len(synsets)), counts)
    parts = np.repeat([("test", "train")[synset in chosen] for synset in synsets], counts)
    images = ImageList(paths, labels, dict(enumerate(synsets)), parts=parts)
    options = {"counts": {"train": (None, trained), "test": (None, total - trained)}}
    return archive.dataset(images, skip_invalid, training, check_files=skip_invalid, **options)


def _synsets(folder):
    """{synset: paths of its images} of a folder."""
    return {
        synset.name: sorted(
            image.path
            for image in os.scandir(synset)
            if os.path.splitext(image.name)[1].lower() in SUFFIXES and image.is_file()
        )
        for synset in os.scandir(folder)
        if re.fullmatch(r"n\d{8}", synset.name) and synset.is_dir()
    }
