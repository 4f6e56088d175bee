"""Writes small data sets in the layouts that the archives of their authors unpack to."""

import numpy as np
from PIL import Image
from scipy.io import savemat

from pipelines.datasets import cars196, cub200, in_shop, stanford_online_products, vehicle_id

BIRDS = [  # with their numbers of images
    ("001.Black_footed_Albatross", 3),
    ("002.Laysan_Albatross", 2),
    ("003.Sooty_Albatross", 1),
    ("004.Groove_billed_Ani", 4),
]
CAR_NAMES = ["AM General Hummer SUV 2000", "Acura RL Sedan 2012", "Audi TT", "Fisker Karma 2012"]
CARS = [  # class, whether to test a classifier on, box
    (1, 0, (2, 3, 12, 9)),
    (1, 1, (1, 1, 20, 16)),
    (2, 0, (4, 4, 9, 9)),
    (2, 1, (3, 3, 22, 17)),
    (3, 0, (1, 2, 3, 4)),
    (4, 0, (5, 6, 7, 8)),
    (4, 1, (9, 10, 11, 12)),
]
PRODUCTS = {  # image, product, kind
    "train": [(1, 1, "bicycle"), (2, 1, "bicycle"), (3, 2, "chair"), (4, 2, "chair")],
    "test": [(5, 3, "chair"), (6, 3, "chair"), (7, 4, "bicycle")],
}
CLOTHES = [  # image, part, box
    ("WOMEN/Dresses/id_00000002/02_1_front.jpg", "train", (3, 2, 18, 12)),
    ("WOMEN/Dresses/id_00000002/02_2_side.jpg", "train", (1, 1, 5, 6)),
    ("MEN/Denim/id_00000007/01_1_front.jpg", "query", (0, 0, 21, 17)),
    ("MEN/Denim/id_00000007/01_2_side.jpg", "gallery", (4, 4, 8, 8)),
    ("WOMEN/Dresses/id_00000007/02_1_front.jpg", "gallery", (5, 4, 8, 8)),
    ("WOMEN/Dresses/id_00000011/01_1_front.jpg", "query", (6, 4, 8, 8)),
    ("WOMEN/Dresses/id_00000011/01_7_additional.jpg", "gallery", (7, 4, 8, 8)),
]
TESTED = [(f"{100 + i:07d}", vehicle) for i, vehicle in enumerate([9, 9, 9, 5, 5, 9, 5, 5])]
VEHICLES = {  # lists of image, vehicle
    "train_list": [("0000001", 30), ("0000002", 30), ("0000003", 2), ("0000004", 2)],
    "test_list_800": TESTED,
    "test_list_1600": [*TESTED, ("0000200", 7)],
}
MODELS = {5: 17, 2: 40, 77: 3}  # of vehicles
KINDS = {"bicycle": 1, "cabinet": 2, "chair": 4}


def write_image(path):
    """An image 20 wide and 16 high, of the colours that its name stands for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(list(str(path.name).encode()))
    pixels = rng.integers(0, 256, (16, 20, 3), np.uint8)
    Image.fromarray(pixels).save(path, format=None if path.suffix else "JPEG")


def write_birds(folder, birds=BIRDS):
    """CUB_200_2011.tgz: the first 12 images in boxes i, 2, 7, i + 0.5."""
    root = folder / "CUB_200_2011"
    images = [f"{bird}/Photo_{i}_{n}.jpg" for bird, n in birds for i in range(n)]
    labels = [label for label, (_, n) in enumerate(birds, start=1) for _ in range(n)]
    for image in images:
        write_image(root / "images" / image)
    places = [f"{i}.0 2.0 7.0 {i}.5" for i in range(1, len(images) + 1)]
    columns = {"images": images, "image_class_labels": labels, "bounding_boxes": places}
    for file, values in {**columns, "classes": dict(birds)}.items():
        lines = (f"{i} {value}\n" for i, value in enumerate(values, start=1))
        (root / f"{file}.txt").write_text("".join(lines))
    return root


def write_merged_cars(folder, cars=CARS, names=CAR_NAMES):
    """car_ims.tgz and cars_annos.mat."""
    rows = []
    for i, (label, test, box) in enumerate(cars, start=1):
        image = f"car_ims/{i:06d}.jpg"
        write_image(folder / image)
        rows.append((image, *map(np.uint8, box), np.uint8(label), np.uint8(test)))
    annotations = structures(["relative_im_path", *cars196.EDGES, "class", "test"], rows)
    savemat(folder / "cars_annos.mat", {"annotations": annotations, "class_names": cells(names)})
    return folder


def write_divided_cars(folder):
    """cars_train.tgz, cars_test.tgz, car_devkit.tgz and cars_test_annos_withlabels.mat."""
    root = folder / "stanford_cars"
    (root / "devkit").mkdir(parents=True)
    for part, test in (("train", 0), ("test", 1)):
        rows = []
        for label, tested, box in CARS:
            if tested == test:
                image = f"{len(rows) + 1:05d}.jpg"
                write_image(root / f"cars_{part}" / image)
                rows.append((*map(np.uint16, box), np.uint8(label), image))
        annotations = {"annotations": structures([*cars196.EDGES, "class", "fname"], rows)}
        file = {"train": "devkit/cars_train_annos.mat", "test": "cars_test_annos_withlabels.mat"}
        savemat(root / file[part], annotations)
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": cells(CAR_NAMES)})
    return root


def structures(fields, rows):
    """A MATLAB structure array of one row, as the annotations are."""
    array = np.empty((1, len(rows)), dtype=[(field, object) for field in fields])
    for i, row in enumerate(rows):
        array[0, i] = row
    return array


def cells(words):
    array = np.empty((1, len(words)), object)
    array[0] = words
    return array


def write_products(folder, rows=PRODUCTS):
    """Stanford_Online_Products.zip."""
    root = folder / "Stanford_Online_Products"
    for part, listed in rows.items():
        lines = ["image_id class_id super_class_id path\n"]
        for image, product, kind in listed:
            path = f"{kind}_final/11108512{product}_{image}.JPG"
            write_image(root / path)
            lines.append(f"{image} {product} {KINDS[kind]} {path}\n")
        (root / f"Ebay_{part}.txt").write_text("".join(lines))
    return root


def write_clothes(folder, images=CLOTHES):
    """In-shop Clothes Retrieval, its `Img/img.zip` unpacked."""
    root = folder / "In-shop Clothes Retrieval Benchmark"
    (root / "Eval").mkdir(parents=True)
    (root / "Anno").mkdir()
    partition = [str(len(images)), "image_name item_id evaluation_status"]
    boxes = [str(len(images)), "image_name clothes_type pose_type x_1 y_1 x_2 y_2"]
    for image, part, box in images:
        write_image(root / "Img" / "img" / image)
        partition.append(f"{'img/' + image:70} {image.split('/')[2]} {part}")
        boxes.append(f"{'img/' + image:70} 3 1 " + " ".join(f"{edge:03d}" for edge in box))
    (root / "Eval" / "list_eval_partition.txt").write_text("\n".join(partition) + "\n")
    (root / "Anno" / "list_bbox_inshop.txt").write_text("\n".join([*boxes[:2], *boxes[:1:-1]]))
    return root


def write_vehicles(folder, lists=VEHICLES, models=MODELS):
    """VehicleID_V1.0, with the models of some vehicles."""
    root = folder / "VehicleID_V1.0"
    (root / "train_test_split").mkdir(parents=True)
    for file, rows in lists.items():
        text = "".join(f"{image} {vehicle}\n" for image, vehicle in rows)
        (root / "train_test_split" / f"{file}.txt").write_text(text)
        for image, _ in rows:
            write_image(root / "image" / f"{image}.jpg")
    (root / "attribute").mkdir()
    lines = "".join(f"{vehicle} {model}\n" for vehicle, model in models.items())
    (root / "attribute" / "model_attr.txt").write_text(lines)
    return root


def write_synsets(folder, synsets, images=(10, 2)):
    """ImageNet: a folder of images, of these numbers, for each synset."""
    for synset in synsets:
        for image in images:
            write_image(folder / synset / f"{synset}_{image}.JPEG")
    return folder


COUNTS = {"train": (4, 2), "test": (3, 2)}  # of cars, and of products
SMALL = {  # how each is written, its module, and what stands there in place of published numbers
    "cars196": (write_divided_cars, cars196, {"TRAINED": 2, "COUNTS": COUNTS}),
    "cub200": (write_birds, cub200, {"TRAINED": 2, "COUNTS": {"train": (5, 2), "test": (5, 2)}}),
    "in_shop": (
        write_clothes,
        in_shop,
        {"COUNTS": {"train": (2, 1), "test": (2, 2), "gallery": (3, 2)}},
    ),
    "stanford_online_products": (write_products, stanford_online_products, {"COUNTS": COUNTS}),
    "vehicle_id": (
        write_vehicles,
        vehicle_id,
        {"TRAINED": (4, 2), "TESTED": {800: (8, 2), 1600: (9, 3), 2400: (10, 4)}},
    ),
}
