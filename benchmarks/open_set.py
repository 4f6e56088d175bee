"""Decisions between known classes and none on several datasets, as a page.

    python benchmarks/open_set.py CUB-200-2011=cub.npz Cars196=cars.npz Omniglot=omniglot.npz

Takes files of `evaluate.py MODEL --embeddings FILE`, scores each as `evaluate.py open_set` does,
and writes `docs/results/open_set.md`. The scores of the distance to the nearest image are computed
again by scikit-learn alone, by the formulas of OpenOOD, and must be the same.
"""

import argparse
import pathlib

import numpy as np
from sklearn import metrics
from sklearn.neighbors import KNeighborsClassifier

from tfdml import evaluation

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "results" / "open_set.md"
RATE = 0.01  # of false alarms
HEAD = """# Known classes or none

<!-- not run: minutes, on images and weights to get -->
```bash
head="--backbone mobilenet_v2 --weights mobilenet_v2.weights.h5 --tune head"
head="$head --loss multi_similarity --embedding_dim 512"
python train.py $head --dataset cub200 --data_dir CUB_200_2011 --image_size 224 --run cub
python train.py $head --dataset folder --data_dir photos --image_size 112 --run cars
python train.py $head --dataset tfds:omniglot --data_dir tensorflow_datasets --image_size 64 \\
    --run omniglot
for name in cub cars omniglot
do
    python evaluate.py runs/$name --nmi=false --embeddings $name.npz
done
python benchmarks/open_set.py {arguments}
```

Half of the unseen classes choose the method, the threshold and the probability, the others are
scored, in ten draws: [the protocol](../tutorials/evaluate.md#one-of-the-known-classes-or-none).
`dir` is the share of known images that are accepted and classified rightly at thresholds of the
other classes, beside the false-alarm rate that these lead to, 1 % being asked for; naive is one
threshold on the distance to the nearest image. `ece` is the mean of the draws, `pooled_ece` that of
all draws together. Brackets are 95 % intervals over classes.

{head}
{rows}

AUROC, FPR@95 and `dir` of the distance to the nearest image, computed by scikit-learn and the
formulas of OpenOOD on one split of each dataset, differ from those of `tfdml.evaluation` by at most
{difference:g}.
"""


COLUMNS = [
    "images",
    "classes",
    "AUROC",
    "OSCR",
    "`dir` (false alarms)",
    "naive `dir` (false alarms)",
]
COLUMNS += ["`ece`", "`pooled_ece`"]


def reference(queries, truth, gallery, labels):
    """The scores of the distance to the nearest image without tfdml, its class and its distance."""
    model = KNeighborsClassifier(1, algorithm="brute").fit(gallery, labels)
    found, distances = model.predict(queries), model.kneighbors(queries)[0][:, 0]
    known, confidence = truth >= 0, -distances
    accepted, hits, _ = metrics.roc_curve(known, confidence)
    fewest = np.sort(confidence[~known])[::-1][int(RATE * np.sum(~known))]
    right = known & (found == truth) & (confidence > fewest)
    return {
        "auroc": metrics.auc(accepted, hits),
        "fpr@95": accepted[np.argmax(hits >= 0.95)],
        "dir": right.sum() / known.sum(),
    }


def difference_of(rows, labels):
    """The largest difference of our scores from those of `reference`, on one split."""
    rows, rng = rows.astype(np.float64), np.random.default_rng(0)
    known = np.isin(labels, rng.permutation(np.unique(labels))[::2])
    gallery = known & (rng.random(len(labels)) < 0.5)
    truth = np.where(np.isin(labels, labels[gallery]), labels, -1)[~gallery]
    data = rows[~gallery], rows[gallery], labels[gallery]
    ours = evaluation.open_set_scores(*evaluation.open_set_predictions(*data), truth)
    theirs = reference(data[0], truth, *data[1:])
    return max(abs(ours[name] - value) for name, value in theirs.items())


def line(name, rows, labels):
    found = evaluation.open_set_evaluation(rows, labels, false_alarm_rate=RATE)
    scores, (low, high) = found["scores"], found["intervals"]["ece"]
    chosen, naive = (
        f"{rule['dir']:.3f} ({100 * rule['false_alarm_rate']:.1f} %)"
        for rule in (found["rules"][kind] for kind in ("chosen", "naive"))
    )
    ece, pooled = f"{scores['ece']:.3f} [{low:.3f}, {high:.3f}]", f"{scores['pooled_ece']:.3f}"
    counts = f"{name}, {len(rows):,}", f"{len(np.unique(labels)):,}"
    auroc, oscr = (f"{scores[score]:.3f}" for score in ("auroc", "oscr"))
    return row_of([*counts, auroc, oscr, chosen, naive, ece, pooled])


def row_of(cells):
    return f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="NAME=FILE")
    given, lines, differences = parser.parse_args().files, [], []
    for name, path in (each.split("=", 1) for each in given):
        with np.load(path) as file:
            labels = np.unique(file["labels"], return_inverse=True)[1]
            rows = file["embeddings"]
        differences.append(difference_of(rows, labels))
        lines.append(line(name, rows, labels))
        print(lines[-1], f"difference {differences[-1]:.1e}", flush=True)
    head = f"{row_of(COLUMNS)}\n{row_of(['---'] * len(COLUMNS))}"
    texts = {"arguments": " ".join(given), "head": head, "rows": "\n".join(lines)}
    PAGE.write_text(HEAD.format(**texts, difference=max(differences)), encoding="utf-8")


if __name__ == "__main__":
    main()
