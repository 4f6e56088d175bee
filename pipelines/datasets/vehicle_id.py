import dataclasses

import numpy as np

from pipelines.datasets.archive import Archive
from pipelines.datasets.listing import Listing, dataset_of
from pipelines.split import draw_gallery

ARCHIVE = Archive(
    "vehicle_id",
    "VehicleID",
    folder="VehicleID_V1.0",
    source="VehicleID_V1.0 of Peking University's PKU-VehicleID (the folders image, "
    "train_test_split and attribute), which its authors give out on request",
)
# Counts of the lists. The paper has 110,178 images of 13,134 vehicles to train, and 7,332, 12,995
# and 20,038 images to test.
TRAINED = (113346, 13164)
MODELS = "attribute/model_attr.txt"  # of part of the vehicles
TESTED = {800: (6493, 800), 1600: (13377, 1600), 2400: (19777, 2400)}


def load(data_dir=None, skip_invalid=False, training=True, *, size=800, models=False):
    """VehicleID: photographs of vehicles by surveillance cameras; each vehicle is a class.

    13,164 vehicles are for training, `size` others for testing. The gallery has one image of each
    test vehicle, drawn at random with seed 0; all others are the queries (`test`). For a mean over
    several draws, call `pipelines.draw_gallery` on `dataset.test` and `dataset.gallery` joined.

    Args:
        data_dir: Folder of the unpacked archive, or its parent.
        skip_invalid: Whether missing and unreadable images are skipped, and other counts than
            published accepted, with a warning; otherwise they are an error.
        training: Whether to train on the training classes; if not, they may have a single image.
        size: Of the test list: 800, 1600 or 2400 vehicles, the papers' small, medium and large.
        models: Whether to train only on vehicles whose model is known; the models are then the
            training super-classes, for the sampler `groups`.

    Raises:
        FileNotFoundError: If files of the archive are missing.
        ValueError: If they differ from the published ones.

    Source:
        Liu, Tian, Wang, Pang, Huang. Deep relative distance learning: tell the difference between
        similar vehicles. CVPR 2016. By models: Yuan, Yang, Zhang. Hard-aware deeply cascaded
        embedding. ICCV 2017, whose code lists 38,998 images of 5,043 vehicles of 223 models.
    """
    lists = {"train": "train_list.txt", "test": f"test_list_{size}.txt"}
    folder = "train_test_split"
    root = ARCHIVE.root(data_dir, [folder])
    model_of = dict(ARCHIVE.rows(root / MODELS, ("#vehicle", "#model"))) if models else {}
    rows, parts = [], []
    for part, file in lists.items():
        found = ARCHIVE.rows(root / folder / file, ("image", "#vehicle"))
        if models and part == "train":
            found = [(image, vehicle) for image, vehicle in found if vehicle in model_of]
        rows += found
        parts += [part] * len(found)
    listing = Listing(
        [str(root / "image" / f"{image}.jpg") for image, _ in rows],
        [vehicle for _, vehicle in rows],
        parts,
    )
    name = "vehicle_id" if size == 800 else f"vehicle_id_{size}"
    trained = {} if models else {"train": TRAINED}  # the number with a model is not published
    dataset = dataset_of(
        f"{name}_models" if models else name,
        listing,
        skip_invalid=skip_invalid,
        training=training,
        source=ARCHIVE.source,
        counts={**trained, "test": TESTED[size]},
    )
    queries, gallery = draw_gallery(dataset.test)
    train = dataset.train
    if models:
        kinds = np.array([model_of[vehicle] for vehicle in train.labels.tolist()])
        train = dataclasses.replace(train, super_labels=kinds)
    return dataclasses.replace(dataset, train=train, test=queries, gallery=gallery)
