import dataclasses

import numpy as np

from pipelines.datasets.archive import Archive
from pipelines.datasets.image_list import ImageList
from pipelines.split import draw_gallery

ARCHIVE = Archive(
    "vehicle_id",
    folder="VehicleID_V1.0",
    source="VehicleID_V1.0 of Peking University's PKU-VehicleID (the folders image, "
    "train_test_split and attribute), which its authors give out on request",
)
# Counts of the lists, which differ from those that the paper states.
TRAINED = (113346, 13164)
MODELS = "attribute/model_attr.txt"  # of part of the vehicles
TESTED = {800: (6493, 800), 1600: (13377, 1600), 2400: (19777, 2400)}


def load(data_dir=None, skip_invalid=False, training=True, *, size=800, models=False):
    """VehicleID: photographs of vehicles by surveillance cameras; each vehicle is a class.

    13,164 vehicles are for training, `size` others for testing. The gallery has one image of each
    test vehicle, drawn at random with seed 0; all others are the queries (`test`). For a mean over
    several draws, call `pipelines.draw_gallery` on `dataset.test` and `dataset.gallery` joined.

    The test list has a `size` of 800, 1600 or 2400 vehicles, the papers' small, medium and large.
    With `models` only vehicles of a known model train, which is their super-class.

    Source:
        Liu, Tian, Wang, Pang, Huang. Deep relative distance learning: tell the difference between
        similar vehicles. CVPR 2016. By models: Yuan, Yang, Zhang. Hard-aware deeply cascaded
        embedding. ICCV 2017, whose code lists 38,998 images of 5,043 vehicles of 223 models.
    """
    folder = "train_test_split"
    root = ARCHIVE.root(data_dir, [folder])
    files = {"train": "train_list.txt", "test": f"test_list_{size}.txt"}
    lists = {part: root / folder / file for part, file in files.items()}
    rows, parts = ARCHIVE.parts(lists, ("image", "#vehicle"))
    images, labels = zip(*rows, strict=True)
    paths = [str(root / "image" / f"{image}.jpg") for image in images]
    listed = ImageList(paths, labels, parts=parts)
    name, counts = "vehicle_id", {"train": TRAINED, "test": TESTED[size]}
    name += "" if size == 800 else f"_{size}"
    if models:
        name += "_models"
        del counts["train"]  # the number with a model is not published
        model_of = dict(ARCHIVE.rows(root / MODELS, ("#vehicle", "#model")))
        listed = listed.subset((listed.parts == "test") | np.isin(labels, list(model_of)))
    archive = dataclasses.replace(ARCHIVE, name=name)
    dataset = archive.dataset(listed, skip_invalid, training, counts=counts)
    queries, gallery = draw_gallery(dataset.test)
    train = dataset.train
    if models:
        kinds = [model_of[vehicle] for vehicle in train.labels.tolist()]
        train = dataclasses.replace(train, super_labels=kinds)
    return dataclasses.replace(dataset, train=train, test=queries, gallery=gallery)
