"""One network in every runtime: its numbers, Recall@1, sizes and latencies, beside Keras.

    python benchmarks/runtimes.py CUB_200_2011/images --weights weights

The folder has one sub-folder of images per class; 256 images of 32 classes of its second half are
embedded. `--weights` has `googlenet_bvlc.npz` and `mobilenetv2_1.0_224_no_top.weights.h5`; other
networks are of random weights. Also writes docs/results/runtimes.md. Needs the runtimes, OpenCV for
its decoder, and PyTorch with onnxscript for its own ONNX files.
"""

import argparse
import collections
import concurrent.futures
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf
from PIL import Image, ImageOps
from timing import seconds_of
from tqdm import tqdm

from pipelines import Reader
from tfdml import losses
from tfdml.evaluation import recall_at_k
from tfdml.models import build_embedder
from tfdml.serving import ExportOptions, export_model, load_network
from tfdml.serving.metadata import read_metadata
from tfdml.serving.nearest import images_of
from tfdml.serving.options import FORMATS
from tfdml.serving.versions import megabytes

CLASSES, IMAGES, DIM, SIDE, BATCH = 32, 8, 64, 224, 32
SHAPE = (SIDE, SIDE, 3)
WEIGHTS = {
    "googlenet": "googlenet_bvlc.npz",
    "mobilenet_v2": "mobilenetv2_1.0_224_no_top.weights.h5",
}
FILES = [f"model{suffix}" for suffix, _ in FORMATS.values()]
NAMES = ["Keras", "SavedModel", "ONNX Runtime", "LiteRT", "OpenVINO"]
PYTORCH = "PyTorch's ONNX"
VARIANTS = ["", "HDC", "PDDM"]
CONVERTED = "mobilenet_v2,googlenet,resnet50,inception_v3,small_cnn"  # to ONNX, by tf2onnx 1.17
PAGE = pathlib.Path(__file__).parents[1] / "docs" / "results" / "runtimes.md"
INTRODUCTION = f"""# One model in every runtime

<!-- not run: minutes, on images and weights to get -->

```bash
python benchmarks/runtimes.py CUB_200_2011/images --weights weights
```

{CLASSES * IMAGES} images of {CLASSES} classes of CUB-200-2011 that the papers do not train on, of
{SIDE} pixels, in embeddings of {DIM} numbers by an untrained layer; HDC has three of them.
GoogLeNet and MobileNetV2 have trained weights. The others start at random: their Recall@1 only
shows that it does not change. PyTorch's ONNX is the same network in Keras on PyTorch, exported by
`torch.onnx` and run by ONNX Runtime.
"""
TABLES = {
    "Equality": (
        "The largest difference of a number from that of Keras, and Recall@1 in percent:",
        ["network", *NAMES, PYTORCH],
    ),
    "Rounded weights": (
        "Recall@1, and the size in MB. Those of MobileNetV2 had been rounded to 8 bits before.",
        ["network", "weights", *NAMES[1:]],
    ),
    "Latency": (
        "Milliseconds for one image and for a batch of 32, without decoding, the median of calls\n"
        "in turns. Keras is compiled by `tf.function`.",
        ["network", "images", *NAMES, PYTORCH],
    ),
    "Decoders": (
        "Images read by a client, beside those that the served MobileNetV2 decodes and resizes:\n"
        "the mean and the largest difference of a pixel, and Recall@1 of queries read so, among\n"
        "images read by the served model.",
        ["decoder", "mean", "largest", "recall@1"],
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="images, a sub-folder per class")
    parser.add_argument("--weights", type=pathlib.Path, default=pathlib.Path("weights"))
    parser.add_argument("--backbones", default=CONVERTED, help="names, joined by commas")
    parser.add_argument("--rounds", type=int, default=20, help="of latencies; 0 leaves them out")
    arguments = parser.parse_args()
    jobs = [
        (arguments, backbone, variant)
        for backbone in arguments.backbones.split(",")
        for variant in (VARIANTS if backbone == "googlenet" else VARIANTS[:1])
    ]
    tables = {name: [] for name in TABLES}
    # Each in a process of its own, whose memory is freed.
    spawned = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, spawned, max_tasks_per_child=1) as processes:
        for found in processes.map(measure, jobs):
            print(found, flush=True)
            for name, rows in found.items():
                tables[name] += rows
    parts = [
        f"\n## {name}\n\n{text}\n\n{table(columns, tables[name])}"
        for name, (text, columns) in TABLES.items()
        if tables[name]
    ]
    PAGE.write_text(INTRODUCTION + "".join(parts), encoding="utf-8")


def measure(job):
    """{name of a table: rows} of a network."""
    arguments, backbone, variant = job
    file = arguments.weights / WEIGHTS.get(backbone, "")
    weights = str(file) if file.is_file() else None
    paths, labels = chosen(*images_of(arguments.folder))
    images = read_all(lambda path: Reader(SHAPE)(path.read_bytes()), paths)
    loss = None
    if variant == "PDDM":
        loss = losses.get("pddm", similarity={"seed": 0})
        loss.similarity_layer.build((None, DIM))
    keras.utils.set_random_seed(0)
    levels = 3 if variant == "HDC" else 1
    embedder = build_embedder(backbone, DIM, input_shape=SHAPE, weights=weights, levels=levels)
    title = f"{backbone}, {variant}" if variant else backbone
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        version = pathlib.Path(folder, "1")
        export_model(embedder, version, loss=loss, format=",".join(FORMATS), images=images)
        functions = functions_of(version, embedder)
        if loss:
            rows = scores(version, functions, images, loss)
            found["Equality"] = [[f"{title}: score", *rows, ""]]
            return found
        functions[PYTORCH] = by_pytorch(embedder, backbone, levels, version)
        found["Equality"] = [[title, *equality(functions, images, labels)]]
        if arguments.rounds:
            found["Latency"] = latencies(title, functions, images, arguments.rounds)
        if weights and not variant:
            found["Rounded weights"] = rounding(title, version.parent, embedder, images, labels)
        if weights and backbone == "mobilenet_v2":
            found["Decoders"] = decoding(functions["SavedModel"], paths, images, labels)
    return found


def chosen(paths, classes):
    """The first images of the first classes of the second half."""
    names = sorted(set(classes))
    names = names[len(names) // 2 :][:CLASSES]
    pairs = [pair for pair in zip(paths, classes, strict=True) if pair[1] in names]
    seen = collections.Counter()
    kept = []
    for path, name in pairs:
        seen[name] += 1
        if seen[name] <= IMAGES:
            kept.append((path, names.index(name)))
    return [path for path, _ in kept], np.array([label for _, label in kept])


def read_all(read, paths):
    return np.stack([np.asarray(read(path), np.float32) for path in tqdm(paths, "Reading")])


def functions_of(version, embedder):
    """{name: function from images to {name: rows}}."""
    compiled = tf.function(lambda images: {"embedding": embedder(images, training=False)})
    signature = tf.saved_model.load(str(version)).signatures["embed_images"]
    files = [load_network(version / file) for file in FILES]
    return dict(zip(NAMES, [compiled, signature, *files], strict=True))


def by_pytorch(embedder, backbone, levels, folder):
    weights, file = folder / "embedder.weights.h5", folder / "by_pytorch.onnx"
    embedder.save_weights(weights)
    script = pathlib.Path(__file__).parent / "peers" / "workers" / "torch_onnx.py"
    words = [sys.executable, script, backbone, DIM, SIDE, levels, weights, file]
    subprocess.run([*map(str, words)], env=os.environ | {"KERAS_BACKEND": "torch"}, check=True)
    return load_network(file)


def embedded(function, images):
    pieces = [images[first : first + BATCH] for first in range(0, len(images), BATCH)]
    return np.concatenate([function(images=tf.constant(p))["embedding"] for p in pieces])


def recall(rows, labels, *gallery):
    return f"{100 * recall_at_k(rows, labels, *gallery, k=1)[1]:.1f}"


def equality(functions, images, labels):
    rows = {name: embedded(function, images) for name, function in functions.items()}
    exact = rows.pop("Keras")
    differences = [np.abs(each - exact).max() for each in rows.values()]
    pairs = zip(differences, rows.values(), strict=True)
    return [recall(exact, labels), *(f"{d:.0e}, {recall(each, labels)}" for d, each in pairs)]


def scores(version, functions, images, loss):
    """The largest differences of the learned similarity of neighbouring images."""
    a = embedded(functions["Keras"], images)
    b = np.roll(a, 1, axis=0)
    exact = np.asarray(loss.similarity(a, b))
    signature = tf.saved_model.load(str(version)).signatures["score_pairs"]
    files = [load_network(version / f.replace("model", "similarity")) for f in FILES]
    sides = {"embeddings_a": tf.constant(a), "embeddings_b": tf.constant(b)}
    found = [np.asarray(each(**sides)["similarity"]) for each in (signature, *files)]
    return ["", *(f"{np.abs(each - exact).max():.0e}" for each in found)]


def rounding(title, folder, embedder, images, labels):
    found = []
    for precision in ("float32", "float16", "int8"):
        options = ExportOptions(precision=precision, format=",".join(FORMATS))
        version = export_model(embedder, folder / f"{len(found) + 2}", options=options)
        files = read_metadata(version)["files"]
        sizes = [files[file]["megabytes"] for file in FILES]
        sizes = [megabytes(version), *sizes]
        functions = [*functions_of(version, embedder).values()][1:]
        recalls = [recall(embedded(each, images), labels) for each in functions]
        pairs = zip(recalls, sizes, strict=True)
        found.append([title, precision, *(f"{each}, {size:.1f}" for each, size in pairs)])
    return found


def latencies(title, functions, images, rounds):
    rows = []
    for count in (1, BATCH):
        batch, seconds = tf.constant(images[:count]), {name: [] for name in functions}
        for _ in tqdm(range(rounds + 1), f"{title}, {count}"):
            for name, function in functions.items():
                call = lambda: np.asarray(function(images=batch)["embedding"])  # noqa: B023, E731
                seconds[name].append(seconds_of(call)[0])
        medians = [1000 * np.median(each[1:]) for each in seconds.values()]
        rows.append([title, count, *(f"{each:.1f}" for each in medians)])
    return rows


def by_pillow(path):
    """As docs/cookbook/onnx.md reads an image."""
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    bands = [band.convert("F").resize((SIDE, SIDE), Image.BILINEAR) for band in image.split()]
    return np.stack(bands, axis=-1)


def by_pillow_bytes(path):
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    return image.resize((SIDE, SIDE), Image.BILINEAR)


def by_opencv(path, interpolation):
    import cv2

    return cv2.resize(
        cv2.imread(str(path)), (SIDE, SIDE), interpolation=getattr(cv2, interpolation)
    )[..., ::-1]


def decoding(function, paths, images, labels):
    readers = {
        "Pillow, resized as floats": by_pillow,
        "Pillow, resized as bytes": by_pillow_bytes,
        "OpenCV, `INTER_AREA`": lambda path: by_opencv(path, "INTER_AREA"),
        "OpenCV, `INTER_LINEAR`": lambda path: by_opencv(path, "INTER_LINEAR"),
    }
    exact = embedded(function, images)
    found = [["the served model", 0, 0, recall(exact, labels)]]
    for name, read in readers.items():
        others = read_all(read, paths)
        difference = np.abs(others - images)
        # Each image for itself, as it is not its own neighbour.
        distances = np.linalg.norm(embedded(function, others)[:, None] - exact[None], axis=2)
        np.fill_diagonal(distances, np.inf)
        right = np.mean(labels[distances.argmin(axis=1)] == labels)
        found.append(
            [name, f"{difference.mean():.2g}", f"{difference.max():.2g}", f"{100 * right:.1f}"]
        )
    return found


def table(names, rows):
    lines = [names, ["---"] * len(names), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


if __name__ == "__main__":
    main()
