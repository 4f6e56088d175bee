"""Scores an exported embedder, or a folder of one, on the classes that it was not trained on.

    python evaluate.py saved_models/glyphs_lifted
    python evaluate.py saved_models/glyphs_lifted --dataset folder --data_dir photos

Prints Recall@K and NMI and writes them to runs/NAME/evaluation.json, or where --out says.
"""

import dataclasses
import json
import os
import pathlib
import sys

import yaml

import pipelines
from tfdml.checks import check, unknown_name
from tfdml.command_line import Parser, one_sentence

PROGRAM = "evaluate.py"


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What to score, and how.

    Args:
        model: A run's folder in `saved_models/`, whose newest version is taken, or one version, or
            any SavedModel with the signature `embed_images`.
        dataset: Name of the images: {datasets}; those of the training if not given.
        data_dir: Folder of the dataset, for those that are not built in; that of the training if
            neither is given.
        skip_invalid: Leave out unreadable images with a warning, where they would be an error.
        k: Number or numbers of neighbours for Recall@K.
        nmi: Also cluster by k-means and compare the clusters with the classes.
        seed: Of k-means.
        restarts: Of k-means, of which the best counts.
        out: JSON file for the scores; in the run's folder if not given.
    """

    model: str
    dataset: str | None = None
    data_dir: str | None = None
    skip_invalid: bool = False
    k: int | list[int] = dataclasses.field(default_factory=lambda: [1, 2, 4, 8])
    nmi: bool = True
    seed: int = 0
    restarts: int = 1
    out: str | None = None

    def __post_init__(self):
        counts = self.k if isinstance(self.k, list) else [self.k]
        check(counts and min(counts) > 0, "`k` must be numbers > 0", k=self.k)
        check(0 <= self.seed < 2**32, "`seed` must be >= 0 and < 2**32", seed=self.seed)
        check(self.restarts > 0, "`restarts` must be > 0", restarts=self.restarts)


def main(arguments=None):
    settings = parse(sys.argv[1:] if arguments is None else arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with one_sentence(PROGRAM, ValueError, TypeError, OSError):
        version = find_version(pathlib.Path(settings.model))
        dataset = load_dataset(settings, version)
        scores = score(settings, version, dataset)
        out = write(settings, version, scores)
    print(
        f"\n{version} on {len(dataset.test.labels):,} images of {dataset.test.num_classes:,} "
        f"unseen classes of {dataset.name}:"
    )
    print("\n".join(f"{name:>12}  {value:.4f}" for name, value in scores.items()))
    print(f"Scores: {out}")


def parse(arguments):
    """The settings. Imports neither TensorFlow nor Keras."""
    parser = Parser(
        Evaluation,
        names={"datasets": ", ".join(pipelines.names())},
        prog=PROGRAM,
        description=(__doc__ or "").partition("\n")[0],
    )
    settings = parser.settings_of(parser.parse_args(arguments))
    if settings.dataset not in (None, *pipelines.names()):
        parser.error(unknown_name("dataset", settings.dataset, pipelines.names()))
    return settings


def find_version(folder):
    """The SavedModel at `folder`, or its newest version."""
    if (folder / "saved_model.pb").is_file():
        return folder
    versions = [f for f in folder.glob("[0-9]*") if f.name.isdigit() and f.is_dir()]
    if not versions:
        raise FileNotFoundError(
            f"no SavedModel at {folder}: expected saved_model.pb or folders named 1, 2, ... there"
        )
    return max(versions, key=lambda version: int(version.name))


def load_dataset(settings, version):
    """The dataset that the settings name, or that the model was trained on."""
    name, data_dir = settings.dataset, settings.data_dir
    recipe = version / "assets.extra" / "recipe.yaml"
    if name is None:
        if not recipe.is_file():
            raise ValueError(f"{version} does not say what it was trained on: give --dataset")
        trained_on = yaml.safe_load(recipe.read_text())
        name, data_dir = trained_on["dataset"], data_dir or trained_on["data_dir"]
    return pipelines.load(name, data_dir=data_dir, skip_invalid=settings.skip_invalid)


def score(settings, version, dataset):
    """{name of the score: value} for the test split."""
    import numpy as np
    import tensorflow as tf
    from tqdm import tqdm

    from tfdml import evaluation

    signatures = tf.saved_model.load(str(version)).signatures
    if "embed_images" not in signatures:
        raise ValueError(
            f"{version} has no signature embed_images. It has: {', '.join(signatures)}"
        )
    embed = signatures["embed_images"]
    image_size = tuple(embed.structured_input_signature[1]["images"].shape[1:])
    batches = pipelines.evaluation_batches(dataset.test, image_size)
    embeddings = np.concatenate(
        [
            embed(images=images)["embedding"].numpy()
            for images in tqdm(batches, desc="Embedding", delay=2, unit="batch")
        ]
    )
    labels = dataset.test.labels
    recalls = evaluation.recall_at_k(embeddings, labels, k=settings.k)
    scores = {f"recall@{k}": recall for k, recall in recalls.items()}
    if settings.nmi:
        scores["nmi"] = evaluation.nmi(
            embeddings, labels, seed=settings.seed, restarts=settings.restarts
        )
    return scores


def write(settings, version, scores):
    """Writes the scores and how they came about; returns the path."""
    out = pathlib.Path(
        settings.out or pathlib.Path("runs") / version.parent.name / "evaluation.json"
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    content = {"version": str(version), **dataclasses.asdict(settings), "scores": scores}
    out.write_text(json.dumps(content, indent=2) + "\n")
    return out


if __name__ == "__main__":
    main()
