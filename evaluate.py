"""Scores an exported embedder, or a folder of one, on classes that it was not trained on.

    python evaluate.py saved_models/glyphs_lifted
    python evaluate.py saved_models/glyphs_lifted --dataset folder --data_dir photos --split all

Prints Recall@K and NMI and writes them to runs/NAME/evaluation.json, of other images than those of
the training to evaluation_DATASET.json, or where --out says.
"""

import dataclasses
import json
import os
import pathlib
import sys

import yaml

import pipelines
from tfdml.checks import check, check_one_of, unknown_name
from tfdml.command_line import Parser, check_writable, one_sentence, write_text

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
        split: `test` scores the classes that `train.py` leaves for it, of a folder the second half
            in sorted order; `all` scores every class, as for a folder of new classes.
        skip_invalid: Leave out unreadable images with a warning, where they would be an error.
        k: Number or numbers of neighbours for Recall@K.
        nmi: Also cluster by k-means and compare the clusters with the classes.
        seed: Of k-means.
        restarts: Of k-means, of which the best counts.
        out: JSON file for the scores; in the run's folder if not given, named after the images
            where they are not those of the training.
    """

    model: str
    dataset: str | None = None
    data_dir: str | None = None
    split: str = "test"
    skip_invalid: bool = False
    k: int | list[int] = dataclasses.field(default_factory=lambda: [1, 2, 4, 8])
    nmi: bool = True
    seed: int = 0
    restarts: int = 1
    out: str | None = None

    def __post_init__(self):
        check_one_of(("test", "all"), split=self.split)
        counts = self.k if isinstance(self.k, list) else [self.k]
        check(counts and min(counts) > 0, "`k` must be numbers > 0", k=self.k)
        check(0 <= self.seed < 2**32, "`seed` must be >= 0 and < 2**32", seed=self.seed)
        check(self.restarts > 0, "`restarts` must be > 0", restarts=self.restarts)


def main(arguments=None):
    settings = parse(sys.argv[1:] if arguments is None else arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with one_sentence(PROGRAM, ValueError, TypeError, OSError):
        version = find_version(pathlib.Path(settings.model))
        settings = completed(settings, version)
        out = pathlib.Path(settings.out)
        check_writable(out.parent)
        split = load_split(settings)
        scores = score(settings, version, split)
        out.parent.mkdir(parents=True, exist_ok=True)
        content = {"version": str(version), **dataclasses.asdict(settings), "scores": scores}
        write_text(out, json.dumps(content, indent=2) + "\n")
    print(
        f"\n{version} on {len(split.labels):,} images of {split.num_classes:,} classes "
        f"({settings.split}) of {settings.dataset}:"
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


def completed(settings, version):
    """The settings with the images that the model was trained on, and the file of the scores."""
    trained_on = images_of_training(version)
    dataset, data_dir = settings.dataset, settings.data_dir
    if dataset is None:
        dataset, data_dir = trained_on[0], data_dir or trained_on[1]
    if dataset is None:
        raise ValueError(f"{version} does not say what it was trained on: give --dataset")
    words = ["evaluation"]
    if (dataset, data_dir) != trained_on:
        words += [dataset, *([pathlib.Path(data_dir).resolve().name] if data_dir else [])]
    if settings.split == "all":
        words.append("all")
    out = settings.out or f"runs/{version.resolve().parent.name}/{'_'.join(words)}.json"
    return dataclasses.replace(settings, dataset=dataset, data_dir=data_dir, out=out)


def images_of_training(version):
    """The dataset and its folder in the recipe of a version; (None, None) if it has none."""
    try:
        recipe = yaml.safe_load((version / "assets.extra" / "recipe.yaml").read_text())
        return recipe["dataset"], recipe["data_dir"]
    except (OSError, ValueError, TypeError, LookupError, yaml.YAMLError):  # of other programs
        return None, None


def load_split(settings):
    """The images to score."""
    import numpy as np

    dataset = pipelines.load(
        settings.dataset, settings.data_dir, settings.skip_invalid, training=False
    )
    if settings.split == "test":
        return dataset.test
    halves = (dataset.train, dataset.test)
    return pipelines.Split(
        np.concatenate([half.images for half in halves]),
        np.concatenate([half.labels for half in halves]),
    )


def score(settings, version, split):
    """{name of the score: value} for the images."""
    import numpy as np
    import tensorflow as tf
    from tqdm import tqdm

    from tfdml import evaluation

    try:
        signatures = tf.saved_model.load(str(version)).signatures
    except Exception as error:  # what a broken SavedModel raises has no common class
        raise ValueError(f"{version} cannot be read ({str(error).splitlines()[0]})") from error
    if "embed_images" not in signatures:
        raise ValueError(
            f"{version} has no signature embed_images. It has: {', '.join(signatures)}"
        )
    embed = signatures["embed_images"]
    inputs, outputs = embed.structured_input_signature[1], embed.structured_outputs
    image_size = inputs["images"].shape[1:] if set(inputs) == {"images"} else None
    check(
        image_size is not None
        and image_size.is_fully_defined()
        and len(image_size) == 3
        and "embedding" in outputs,
        f"embed_images of {version} must take `images` of a fixed size and give `embedding`",
        takes={name: spec.shape for name, spec in inputs.items()},
        gives=list(outputs),
    )
    batches = pipelines.evaluation_batches(split, tuple(image_size))
    embeddings = np.concatenate(
        [
            embed(images=images)["embedding"].numpy()
            for images in tqdm(batches, desc="Embedding", delay=2, unit="batch")
        ]
    )
    recalls = evaluation.recall_at_k(embeddings, split.labels, k=settings.k)
    scores = {f"recall@{k}": recall for k, recall in recalls.items()}
    if settings.nmi:
        scores["nmi"] = evaluation.nmi(
            embeddings, split.labels, seed=settings.seed, restarts=settings.restarts
        )
    return scores


if __name__ == "__main__":
    main()
