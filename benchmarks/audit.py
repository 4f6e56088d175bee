"""Faults planted among photographs, and how many an audit finds, beside cleanlab.

    pip install cleanlab
    python benchmarks/audit.py CUB_200_2011/images --weights weights
    python benchmarks/audit.py cars196 --name Cars196 --weights weights

The folder has one sub-folder of images per class. 3 % of the images are added again, encoded anew,
mirrored or cut; 1 %, of the first half of the classes, also in another class of the second half;
2 % get the label of another class; two classes become one, and one becomes two. The embeddings are
the pooled features of MobileNetV2, whose weights `mobilenetv2_1.0_224_no_top.weights.h5` are in the
folder of `--weights`. Prints the average precision of each finding: images that are not found count
as the last; copies in another class count as wrong labels too. Real faults count as errors. With
cleanlab, also that of its label scores by the same features, with probabilities of logistic
regression in 3 folds, and the times of both. Adds the rows to docs/results/audit.md.
"""

import argparse
import pathlib
import tempfile
import time

import keras
import numpy as np
import tensorflow as tf
from PIL import Image, ImageOps
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from tqdm import tqdm

from pipelines.duplicates import find_duplicates
from tfdml.evaluation import audit, rank

SIDE, DIMS = 160, 256  # pixels; principal components for logistic regression
WEIGHTS = "mobilenetv2_1.0_224_no_top.weights.h5"
SHARES = {"duplicate": 0.03, "leak": 0.01, "label": 0.02}
PAGE = pathlib.Path(__file__).parents[1] / "docs" / "results" / "audit.md"
COLUMNS = ("images", "Recall@1", "duplicate", "leak", "pixels", "label", "cleanlab: label", "merge")
COLUMNS += ("split", "audit, s", "neighbours, s", "cleanlab, s")
HEAD = f"""# What an audit finds

<!-- not run: minutes, on images and weights to get -->

```bash
python benchmarks/audit.py CUB_200_2011/images --weights weights
```

Average precision of faults that were planted, by pooled features of MobileNetV2 of {SIDE} pixels,
which were trained on ImageNet alone; real faults count as errors. Recall@1 is that of the features.
`pixels`: what `python -m pipelines.check --duplicates` finds of duplicates and leaks, without a
model. cleanlab ranks labels by probabilities of logistic regression in three folds. Merge and
split: the place of the planted class among the findings.

| {" | ".join(COLUMNS)} |
|{" --- |" * len(COLUMNS)}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="a sub-folder of images per class")
    parser.add_argument("--weights", type=pathlib.Path, required=True, help="folder of weights")
    parser.add_argument("--name", help="of the images in the table; that of the folder's parent")
    options = parser.parse_args()
    images = sorted(path for path in options.folder.glob("*/*") if path.is_file())
    if not images:
        parser.error(f"no images in sub-folders of {options.folder}")
    with tempfile.TemporaryDirectory() as folder:
        paths, labels, planted = plant(images, pathlib.Path(folder), np.random.default_rng(0))
        rows = features(paths, options.weights / WEIGHTS)
        cells = [f"{len(paths):,}", *measured(paths, rows, labels, planted)]
    text = PAGE.read_text("utf-8") if PAGE.is_file() else HEAD
    name = options.name or options.folder.resolve().parent.name
    lines = [line for line in text.splitlines() if not line.startswith(f"| {name}: ")]
    lines.append(f"| {name}: {' | '.join(cells)} |")
    PAGE.write_text("\n".join(lines) + "\n", "utf-8")
    print(lines[-1])


def plant(images, folder, rng):
    """Returns the paths and class numbers of all images, and the planted faults by kind."""
    names = sorted({path.parent.name for path in images})
    labels = np.array([names.index(path.parent.name) for path in images])
    count, classes = len(images), len(names)
    order = rng.permutation(count)
    sizes = {kind: round(share * count) for kind, share in SHARES.items()}
    wrong, twice, rest = np.split(order, np.cumsum([sizes["label"], sizes["duplicate"]]))
    leaked = rest[labels[rest] < classes // 2][: sizes["leak"]]
    labels[wrong] = (labels[wrong] + rng.integers(1, classes, len(wrong))) % classes
    paths, copies = [*images], []
    for place, row in enumerate(tqdm([*twice, *leaked], "Copies", delay=2)):
        picture = Image.open(images[row]).convert("RGB")
        kind = "encode" if place >= len(twice) else ("encode", "mirror", "cut")[place % 3]
        changed(picture, kind, rng).save(path := folder / f"{place}.jpg", quality=60)
        copies.append((int(row), len(paths)))
        paths.append(path)
    others = rng.integers(classes // 2, classes, len(leaked))
    labels = np.concatenate([labels, labels[twice], others])
    one, other, two = rng.permutation(classes)[:3]
    labels[labels == other] = one
    part = np.flatnonzero(labels == two)
    labels[rng.permutation(part)[::2]] = classes
    planted = {
        "duplicate": {frozenset(pair) for pair in copies[: len(twice)]},
        "leak": {frozenset(pair) for pair in copies[len(twice) :]},
        "label": {*wrong.tolist(), *(row for _, row in copies[len(twice) :])},
        "split": one,
        "merge": {two, classes},
    }
    return paths, labels, planted


def changed(picture, kind, rng):
    width, height = picture.size
    if kind == "encode":
        return picture.resize((round(0.8 * width), round(0.8 * height)))
    if kind == "mirror":
        return ImageOps.mirror(picture)
    share = rng.uniform(0.8, 0.95)
    left, top = rng.uniform(0, 1 - share, 2) * picture.size
    return picture.crop((left, top, left + share * width, top + share * height))


def features(paths, weights):
    shape = (SIDE, SIDE, 3)
    network = keras.applications.MobileNetV2(
        input_shape=shape, include_top=False, weights=None, pooling="avg"
    )
    network.load_weights(weights)

    def read(path):
        contents = tf.io.read_file(path)
        image = tf.io.decode_image(contents, channels=3, expand_animations=False)
        return tf.ensure_shape(tf.image.resize(image, shape[:2]), shape) / 127.5 - 1

    data = tf.data.Dataset.from_tensor_slices([*map(str, paths)])
    data = data.map(read, num_parallel_calls=tf.data.AUTOTUNE).batch(64).prefetch(2)
    rows = network.predict(data, verbose=0)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def measured(paths, rows, labels, planted):
    """The cells of the table."""
    groups = (labels >= len(np.unique(labels)) // 2).astype(int)
    start = time.perf_counter()
    ranking = rank(rows, labels, nearest=10, depth=0)
    neighbours = time.perf_counter() - start
    start = time.perf_counter()
    found = audit(rows, labels, groups=groups)
    seconds = time.perf_counter() - start
    recall = np.mean(labels[ranking.nearest[:, 0]] == labels)
    pairs = planted["duplicate"] | planted["leak"]
    precision = {}
    for kind in ("duplicate", "leak"):
        wanted = {pair for pair in pairs if (np.ptp(groups[[*pair]]) > 0) == (kind == "leak")}
        scores = {frozenset(each[1:3]): each.score for each in found if each.finding == kind}
        precision[kind] = average_precision(scores, wanted)
    alike = find_duplicates([*map(str, paths)])
    scores = {frozenset((row, other)): score for row, kind, score, other in alike if kind != "odd"}
    precision["pixels"] = average_precision(scores, pairs)
    scores = {each.row: each.score for each in found if each.finding == "label"}
    precision["label"] = average_precision(scores, planted["label"])
    precision["cleanlab"], peer = by_cleanlab(rows, labels, planted["label"])
    merges = [{*labels[[*each[1:3]]].tolist()} for each in found if each.finding == "merge"]
    splits = [each.label for each in found if each.finding == "split"]
    places = (place_of(merges, planted["merge"]), place_of(splits, planted["split"]))
    scores = [f"{100 * recall:.1f}", *(f"{value:.3f}" for value in precision.values()), *places]
    return [*scores, *(f"{value:.1f}" for value in (seconds, neighbours, peer))]


def by_cleanlab(rows, labels, wrong):
    """Average precision of its label scores, and its seconds with those of the probabilities."""
    from cleanlab.rank import get_label_quality_scores

    start = time.perf_counter()
    components = PCA(DIMS, random_state=0).fit_transform(rows)
    components /= components.std(axis=0).mean()
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    model, numbers = LogisticRegression(C=0.1), np.unique(labels, return_inverse=True)[1]
    kind = {"cv": folds, "method": "predict_proba"}
    probabilities = cross_val_predict(model, components, numbers, **kind)
    scores = 1 - get_label_quality_scores(numbers, probabilities)
    seconds = time.perf_counter() - start
    return average_precision(dict(enumerate(scores)), wrong), seconds


def average_precision(scores, wanted):
    """Of {item: score}, with the wanted items that have none as the last."""
    scores = dict.fromkeys(wanted, -1.0) | scores
    return average_precision_score([item in wanted for item in scores], [*scores.values()])


def place_of(found, wanted):
    return f"{found.index(wanted) + 1} of {len(found)}" if wanted in found else "none"


if __name__ == "__main__":
    main()
