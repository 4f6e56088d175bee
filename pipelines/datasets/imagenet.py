import dataclasses
import os
import re

import numpy as np

from pipelines.datasets.archive import Archive
from pipelines.datasets.image_list import ImageList
from pipelines.invalid import leave_out, warn

SUFFIXES = (".jpeg", ".jpg", ".png")
SYNSETS = {"imagenet2010": (1000, 800), "imagenet10k": (10184, 1000)}  # all, and the training ones
TITLES = {"imagenet2010": "ImageNet 2010", "imagenet10k": "ImageNet-10K"}
LIST = "train_synsets.txt"
ARCHIVE = Archive(
    "imagenet",
    "ImageNet",
    folder="train",
    source="the archives of the synsets of {}, such as n01440764.tar, each unpacked to a folder of "
    "its name",
)
SEED = 0  # of the draw of classes if there is no list


def load(data_dir=None, skip_invalid=False, training=True, *, name="imagenet2010"):
    """ImageNet 2010 or ImageNet-10K: a folder of photographs for each synset of WordNet.

    ImageNet 2010 has 1,000 synsets: 800 to train and 200 to test, for zero-shot learning.
    ImageNet-10K has 10,184: 1,000 to train, in the papers those of ImageNet 2010, and all others to
    test, for transfer.

    The file `train_synsets.txt` in the folder names the training synsets, one a line. Without it
    they are drawn at random with seed 0, with a warning: these are not the papers' classes. Images
    are only looked at beforehand with `skip_invalid`. The folders of the synsets, such as
    `n01440764`, are in `data_dir` or in its folder `train`.

    Source:
        Deng, Dong, Socher, Li, Li, Fei-Fei. ImageNet: a large-scale hierarchical image database.
        CVPR 2009. Splits: Rohrbach, Stark, Schiele. CVPR 2011; Mensink, Verbeek, Perronnin, Csurka.
        PAMI 2013.
        Differs: ImageNet-10K tests on the synsets not trained on; the papers test on all.
    """
    source = ARCHIVE.source.format(TITLES[name])
    archive = dataclasses.replace(ARCHIVE, name=name, title=TITLES[name], source=source)
    root = archive.given(data_dir, "folders such as n01440764")
    found = _synsets(root) or _synsets(root / archive.folder)
    if not found:
        raise archive.missing(root / "n01440764")
    empty = sorted(synset for synset in found if not found[synset])
    leave_out("folders without images", empty, skip_invalid)
    synsets = sorted(set(found).difference(empty))
    total, trained = SYNSETS[name]
    chosen = _chosen(archive, root / LIST, synsets, empty, trained)
    counts = [len(found[synset]) for synset in synsets]
    paths = [path for synset in synsets for path in found[synset]]
    labels = np.repeat(np.arange(len(synsets)), counts)
    parts = np.repeat([("test", "train")[synset in chosen] for synset in synsets], counts)
    images = ImageList(paths, labels, dict(enumerate(synsets)), parts=parts)
    options = {"counts": {"train": (None, trained), "test": (None, total - trained)}}
    return archive.dataset(images, skip_invalid, training, check_files=skip_invalid, **options)


def _synsets(folder):
    """{synset: paths of its images} of a folder."""
    if not folder.is_dir():
        return {}
    return {
        synset.name: sorted(
            image.path
            for image in os.scandir(synset)
            if os.path.splitext(image.name)[1].lower() in SUFFIXES and image.is_file()
        )
        for synset in os.scandir(folder)
        if re.fullmatch(r"n\d{8}", synset.name) and synset.is_dir()
    }


def _chosen(archive, path, synsets, empty, count):
    """The training synsets: those of the list, or drawn if there is none."""
    if path.is_file():
        listed = {synset for (synset,) in archive.rows(path, ("synset",))}
        unknown = sorted(listed.difference(synsets, empty))
        if unknown:
            received = f"Received: {len(unknown)} others, such as {unknown[0]!r}"
            raise ValueError(f"{path} must name existing folders. {received}")
        return listed
    count = min(count, len(synsets))
    drawn = f"{count:,} of {len(synsets):,} synsets are drawn to train, with seed {SEED}"
    warn(f"there is no {path.name}: {drawn}; they are not those of the papers")
    return set(np.random.default_rng(SEED).choice(synsets, count, replace=False).tolist())
