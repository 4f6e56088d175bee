"""Writes small data sets in the layouts that the archives of their authors unpack to."""

import numpy as np
from PIL import Image
from scipy.io import savemat

EDGES = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
KINDS = {"bicycle": 1, "cabinet": 2, "chair": 4}


def write_image(path, size=(20, 16)):
    """An image 20 wide and 16 high, of the colours that its name stands for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(list(str(path.name).encode()))
    pixels = rng.integers(0, 256, (*size[::-1], 3), np.uint8)
    Image.fromarray(pixels).save(path, format=None if path.suffix else "JPEG")


def write_birds(folder, birds):
    """CUB_200_2011.tgz: of each name so many images, the first 12 in boxes i, 2, 7, i + 0.5."""
    root = folder / "CUB_200_2011"
    images = [f"{bird}/Photo_{i}_{n}.jpg" for bird, n in birds for i in range(n)]
    labels = [label for label, (_, n) in enumerate(birds, start=1) for _ in range(n)]
    for image in images:
        write_image(root / "images" / image)
    numbers = range(1, len(images) + 1)

    def write(file, values):
        (root / file).write_text("".join(f"{value}\n" for value in values))

    write("images.txt", (f"{i} {image}" for i, image in zip(numbers, images, strict=True)))
    write("image_class_labels.txt", (f"{i} {n}" for i, n in zip(numbers, labels, strict=True)))
    places = ((i, (i - 1) % 12 + 1) for i in numbers)
    write("bounding_boxes.txt", (f"{i} {place}.0 2.0 7.0 {place}.5" for i, place in places))
    write("classes.txt", (f"{i} {bird}" for i, (bird, _) in enumerate(birds, start=1)))
    write("train_test_split.txt", (f"{i} {i % 2}" for i in numbers))
    return root


def write_merged_cars(folder, cars, names):
    """car_ims.tgz and cars_annos.mat: cars of (class, whether to test a classifier, box)."""
    rows = []
    for i, (label, test, box) in enumerate(cars, start=1):
        image = f"car_ims/{i:06d}.jpg"
        write_image(folder / image)
        rows.append((image, *map(np.uint8, box), np.uint8(label), np.uint8(test)))
    annotations = structures(["relative_im_path", *EDGES, "class", "test"], rows)
    savemat(folder / "cars_annos.mat", {"annotations": annotations, "class_names": cells(names)})
    return folder


def write_divided_cars(folder, cars, names):
    """cars_train.tgz, cars_test.tgz, car_devkit.tgz and cars_test_annos_withlabels.mat."""
    root = folder / "stanford_cars"
    (root / "devkit").mkdir(parents=True)
    for part, test in (("train", 0), ("test", 1)):
        rows = []
        for label, of_test, box in cars:
            if of_test == test:
                image = f"{len(rows) + 1:05d}.jpg"
                write_image(root / f"cars_{part}" / image)
                rows.append((*map(np.uint16, box), np.uint8(label), image))
        annotations = {"annotations": structures([*EDGES, "class", "fname"], rows)}
        file = {"train": "devkit/cars_train_annos.mat", "test": "cars_test_annos_withlabels.mat"}
        savemat(root / file[part], annotations)
        without = [(*row[:4], row[5]) for row in rows]
        savemat(
            root / "devkit" / f"cars_{part}_annos_nolabels.mat",
            {"annotations": structures([*EDGES, "fname"], without)},
        )
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": cells(names)})
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


def write_products(folder, rows):
    """Stanford_Online_Products.zip: of each part rows of (image, product, word of `KINDS`)."""
    root = folder / "Stanford_Online_Products"
    for part, of_part in rows.items():
        lines = ["image_id class_id super_class_id path\n"]
        for image, product, kind in of_part:
            path = f"{kind}_final/11108512{product}_{image}.JPG"
            write_image(root / path)
            lines.append(f"{image} {product} {KINDS[kind]} {path}\n")
        (root / f"Ebay_{part}.txt").write_text("".join(lines))
    return root


def write_clothes(folder, images):
    """In-shop Clothes Retrieval, its `Img/img.zip` unpacked: (path, part, box) of each image."""
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


def write_vehicles(folder, lists, models):
    """VehicleID_V1.0: lists of (image, vehicle) by their names, and {vehicle: model}."""
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
