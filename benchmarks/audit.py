"""Faults planted among photographs, how many an audit finds, beside cleanlab, and what they cost.

    pip install cleanlab
    python benchmarks/audit.py CUB_200_2011/images --weights weights
    python benchmarks/audit.py CUB_200_2011/images --weights weights --train
    python benchmarks/audit.py cars196 --name Cars196 --weights weights

The folder has one sub-folder of images per class. 3 % of the images are added again, encoded anew,
mirrored or cut; 1 %, of the first half of the classes, also in another class of the second half;
2 % get the label of another class; two classes become one, and one becomes two. The embeddings are
the pooled features of MobileNetV2, whose weights `mobilenetv2_1.0_224_no_top.weights.h5` are in the
folder of `--weights`. Prints the average precision of each finding: images that are not found count
as the last; copies in another class count as wrong labels too. Real faults count as errors. With
cleanlab, also that of its label scores by the same features, with probabilities of logistic
regression in 3 folds, and the times of both. Adds the rows to docs/results/audit.md.

With --train heads on these features are trained on the first half of the classes, with 10 % of
their labels wrong, 10 % of their classes split in two, or 10 % of their images copied twice, with
and without `GuardedLoss` and `DistinctPictures`; Recall@1 of the other half, without faults, goes
to the same page.
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

from pipelines import Balanced, DistinctPictures, Split, batches, pictures_of
from pipelines.duplicates import find_duplicates
from tfdml import EmbeddingModel, losses
from tfdml.evaluation import audit, rank, recall_at_k

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

FAULTS, STEPS, WIDTH = 0.1, 400, 512  # share of images or classes; steps, width of a head
BASES = {  # with the rates and options of docs/results/frozen.md, chosen on training classes
    "multi_similarity": (7e-4, {"name": "multi_similarity"}),
    "contrastive": (5e-4, {"name": "contrastive", "margin": 1.37}),
}
GUARDS = [{}, {"margin": 0.0}, {"margin": -0.1}, {"relative_margin": -0.2}, {"max_similarity": 0.8}]
SECTION = "## Training on wrong labels"
TRAINED = f"""{SECTION}

<!-- not run: minutes, on images and weights to get -->

```bash
python benchmarks/audit.py CUB_200_2011/images --weights weights --train
```

Recall@1 of the classes 101 to 200 of CUB-200-2011 after heads of {WIDTH} numbers on the same
features, from their principal components on, {STEPS} steps of 32 x 4 images of the classes 1 to
100, with three seeds (mean and deviation). `labels`: 10 % of the images have the label of another
class. `split`: 10 % of the classes are two, by random halves. `copies`: 10 % of the images are
there three times, encoded anew and mirrored.

| fault | objective | guard or sampler | Recall@1 |
| --- | --- | --- | --- |"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="a sub-folder of images per class")
    parser.add_argument("--weights", type=pathlib.Path, required=True, help="folder of weights")
    parser.add_argument("--train", action="store_true", help="train on the faults instead")
    parser.add_argument("--name", help="of the images in the table; that of the folder's parent")
    options = parser.parse_args()
    images = sorted(path for path in options.folder.glob("*/*") if path.is_file())
    if not images:
        parser.error(f"no images in sub-folders of {options.folder}")
    if options.train:
        return write_trained(images, options.weights / WEIGHTS)
    with tempfile.TemporaryDirectory() as folder:
        paths, labels, planted = plant(images, pathlib.Path(folder), np.random.default_rng(0))
        rows = features(paths, options.weights / WEIGHTS)
        cells = [f"{len(paths):,}", *measured(paths, rows, labels, planted)]
    text = PAGE.read_text("utf-8") if PAGE.is_file() else HEAD
    text, section, trained = text.partition(f"\n{SECTION}\n")
    name = options.name or options.folder.resolve().parent.name
    lines = [line for line in text.splitlines() if not line.startswith(f"| {name}: ")]
    lines.append(f"| {name}: {' | '.join(cells)} |")
    PAGE.write_text("\n".join(lines) + "\n" + section + trained, "utf-8")
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


def write_trained(images, weights):
    """Trains on planted faults, and writes the table of the scores below those of the audit."""
    half = 1 + len({path.parent.name for path in images}) // 2
    labels = np.unique([path.parent.name for path in images], return_inverse=True)[1] + 1
    trained = np.flatnonzero(labels < half)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        twice = rng.choice(trained, round(FAULTS * len(trained)), replace=False)
        paths = [images[row] for row in trained]
        for place, row in enumerate(tqdm(np.repeat(twice, 2), "Copies", delay=2)):
            path = pathlib.Path(folder, f"{place}.jpg")
            kind = "mirror" if place % 2 else "encode"
            changed(Image.open(images[row]).convert("RGB"), kind, rng).save(path, quality=60)
            paths.append(path)
        tests = np.flatnonzero(labels >= half)
        rows = features([*paths, *(images[row] for row in tests)], weights)
        rows, test = rows[: len(paths)], (rows[len(paths) :], labels[tests])
        copied = np.concatenate([labels[trained], np.repeat(labels[twice], 2)])
        pictures = pictures_of(Split([*map(str, paths)], copied))
    lines = [*TRAINED.splitlines(), f"|  | features |  | {100 * recall_at_k(*test, k=1)[1]:.1f} |"]
    clean = labels[trained]
    whole = rows[: len(clean)]
    wrong, split = clean.copy(), clean.copy()
    some = rng.choice(len(clean), round(FAULTS * len(clean)), replace=False)
    wrong[some] = (clean[some] - 1 + rng.integers(1, half - 1, len(some))) % (half - 1) + 1
    for label in rng.choice(np.unique(clean), round(FAULTS * (half - 1)), replace=False):
        split[rng.permutation(np.flatnonzero(clean == label))[::2]] += half
    for fault, known in {"none": clean, "labels": wrong, "split": split}.items():
        for name, (rate, base) in BASES.items():
            for guard in GUARDS:
                loss = {"name": "guarded", "base": base, **guard} if guard else base
                cells = recalls(whole, known, loss, rate, test)
                words = ", ".join(f"`{key}` {value}" for key, value in guard.items())
                lines.append(f"| {fault} | `{name}` | {words or 'no guard'} | {cells} |")
                print(lines[-1], flush=True)
    for name, (rate, base) in BASES.items():
        for words, found in {"all": None, "`skip_duplicates`": pictures}.items():
            cells = recalls(rows, copied, base, rate, test, found)
            lines.append(f"| copies | `{name}` | {words} | {cells} |")
            print(lines[-1], flush=True)
    text, _, rest = PAGE.read_text("utf-8").partition(f"\n{SECTION}\n")
    _, heading, further = rest.partition("\n## ")
    PAGE.write_text("\n".join([text.rstrip("\n"), "", *lines, ""]) + heading + further, "utf-8")


def recalls(rows, labels, loss, rate, test, pictures=None):
    """The cells of Recall@1 after heads of three seeds."""
    found, values = [], np.linalg.eigh(np.cov(rows, rowvar=False))[1]
    kernel = values[:, : -WIDTH - 1 : -1]
    for seed in range(3):
        keras.utils.set_random_seed(seed)
        head = keras.Sequential([keras.Input(rows.shape[1:]), keras.layers.Dense(WIDTH)])
        head.set_weights([kernel, -rows.mean(axis=0) @ kernel])
        model = EmbeddingModel(head)
        schedule = keras.optimizers.schedules.CosineDecay(rate, STEPS)
        model.compile(keras.optimizers.Adam(schedule), loss=losses.get(dict(loss)))
        sampler = Balanced(32, 4)
        if pictures is not None:
            sampler = DistinctPictures(sampler, pictures)
        data = batches(Split(inputs=rows, labels=labels), sampler, seed=seed)
        model.fit(data, steps_per_epoch=STEPS, verbose=0)
        found.append(100 * recall_at_k(head.predict(test[0], verbose=0), test[1], k=1)[1])
    return f"{np.mean(found):.1f} ± {np.std(found, ddof=1):.1f}"


if __name__ == "__main__":
    main()
