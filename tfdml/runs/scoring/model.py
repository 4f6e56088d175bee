"""The exported model that is scored, with the recipe of its run."""

import dataclasses
import math
import os
import pathlib
import shlex

import pipelines
import tfdml
from pipelines.datasets import place_of
from tfdml.checks import check, check_fits
from tfdml.command_line import program_call
from tfdml.files import identity
from tfdml.progress import progress
from tfdml.runs.folders import RUNS, SAVED_MODELS
from tfdml.runs.images import preprocessing_of
from tfdml.serving import exported
from tfdml.serving.versions import name_of, versions_of


@dataclasses.dataclass(frozen=True)
class ScoredModel:
    """A version of an exported model.

    Args:
        version: Path of the version.
        recipe: {name: value}, the settings of its training; empty if unknown.
        signatures: {name: signature}; empty until `loaded`.
        levels: How many embeddings of each image, side by side, are scored.
        dim: Numbers of each of them; 0 until `loaded`.
    """

    version: pathlib.Path
    recipe: dict
    signatures: dict = dataclasses.field(default_factory=dict)
    levels: int = 1
    dim: int = 0

    @property
    def name(self):
        """That of the folder of its versions, or of the SavedModel if it has no number."""
        return name_of(self.version).partition("/")[0]

    def was_trained_on(self, settings):
        """Whether the images to score are of the dataset and folder of the training."""
        places = {
            folder and identity(place_of(settings.dataset, folder))
            for folder in (self.recipe.get("data_dir"), settings.data_dir)
        }
        return self.recipe.get("dataset") == settings.dataset and len(places) == 1

    def loaded(self, settings):
        """The model with its signatures and the levels that are scored."""
        signatures = exported.load_signatures(self.version, settings.rank_by == "similarity")
        width = signatures["embed_images"].structured_outputs["embedding"].shape[1]
        weights = settings.level_weights
        most = len(weights or [1])
        if "embedding_dim" in self.recipe:
            # An export of the first numbers is shorter.
            most = max(1, width // (self.recipe["embedding_dim"] or width))
        levels = settings.levels or most
        expectation = "`levels` must not exceed those of the model"
        check(levels <= most, expectation, levels=levels, of_model=most)
        fit = weights is None or (len(weights) == levels > 1 and width % levels == 0)
        expectation = "`level_weights` must have one number for each level of a model with several"
        check(fit, expectation, level_weights=weights, levels=levels)
        dim = width // most
        fit = settings.dims is None or (levels == 1 and settings.dims <= dim)
        expectation = "`dims` must not exceed the embedding of a model of one level"
        check(fit, expectation, dims=settings.dims, embedding_dim=dim, levels=levels)
        return dataclasses.replace(self, signatures=signatures, levels=levels, dim=dim)

    @property
    def preprocessing(self):
        """How the images of the training were brought to their size."""
        mean = self.version / "assets.extra" / exported.MEAN_IMAGE
        return preprocessing_of(self.recipe, mean if self.recipe.get("mean_image") else None)

    def embed(self, settings, split, signature=None):
        """Embeddings of the images, in order.

        Args:
            settings: `Scoring`.
            split: `Split` of n images.
            signature: Of other weights of the same model; its own if None.

        Returns:
            (n, levels * dim) floats.
        """
        import numpy as np

        from pipelines.images import named
        from pipelines.views import views
        from tfdml.serving.embedding import InPieces, fitting_batch_size

        signature = signature or self.signatures["embed_images"]
        image_size = tuple(signature.structured_input_signature[1]["images"].shape[1:])
        width = signature.structured_outputs["embedding"].shape[1]
        batch_size = settings.batch_size or fitting_batch_size(image_size, width)
        network = InPieces(lambda images: signature(images=images)["embedding"], batch_size)
        reading = self.preprocessing
        read_size = reading.size_of_views(image_size) if settings.crops > 1 else image_size
        rows, scored = len(split.labels), self.levels * self.dim
        check_fits(4 * rows * scored, "the embeddings", images=rows, embedding_dim=scored)
        pixels = math.prod(read_size) * min(batch_size, rows)
        check_fits(4 * pixels, "a batch of images", batch_size=batch_size, image_size=read_size)

        def embeddings_of(images):
            shown = views(images, image_size, crops=settings.crops, mirror=settings.mirror)
            of_views = np.stack([network(view)[:, :scored] for view in shown])
            if len(of_views) == 1:
                return of_views[0]
            return tfdml.evaluation.average_views(of_views, self.levels)

        batches = pipelines.evaluation_batches(split, read_size, batch_size, preprocessing=reading)
        batches = progress("Embedding", batches, unit="batch")
        with named(split):
            embeddings, end = np.empty((rows, scored), np.float32), 0
            for images in batches:
                start, end = end, end + len(images)
                embeddings[start:end] = embeddings_of(images)
            return embeddings

    def joined(self, settings, embeddings):
        """The embeddings of all levels, weighed by `level_weights`, or their first `dims`."""
        if settings.dims is not None:
            return tfdml.evaluation.first_dims(embeddings, settings.dims)
        if settings.level_weights is None:
            return embeddings
        return tfdml.evaluation.weigh_levels(embeddings, settings.level_weights)

    def embed_joined(self, settings, split):
        """Embeddings of the images as they are ranked: all levels, joined."""
        return self.joined(settings, self.embed(settings, split))

    def similarity(self, settings, pairs=None):
        """The learned similarity of all rows to all rows, if `rank_by` asks for it; else None.

        Args:
            settings: `Scoring`.
            pairs: As for `similarity_of`.
        """
        if settings.rank_by == "distance":
            return None
        return similarity_of(self.signatures["score_matrix"], pairs)


def untrained_scores(settings, model, images):
    """{name: value} of the network before its training, where the same is scored now; {} if not.

    `images` is the number of them.
    """
    from tfdml.serving.metadata import read_metadata

    of_training = read_metadata(model.version).get("scores") or {}
    is_same = (
        model.was_trained_on(settings)
        and settings.rank_by == "distance"
        and settings.split == of_training.get("scored_classes")
        and settings.boxes == model.recipe.get("boxes")
        and settings.skip_invalid == bool(model.recipe.get("skip_invalid"))
        and of_training.get("scored_images", images) == images
        and not settings.changes_embeddings
    )
    return of_training.get("untrained", {}) if is_same and "trained" in of_training else {}


def find_model(settings):
    """The `ScoredModel` of the settings, not yet loaded.

    Raises:
        FileNotFoundError: If there is no model, or its run has exported none yet.
        ValueError: If the folder of its images is known by name alone and `data_dir` is not given.
    """
    version = find_version(pathlib.Path(settings.model))
    recipe, whole = exported.recipe_of(version), exported.config_of(version)
    folder = recipe.get("data_dir")
    if whole or settings.dataset or not folder or os.path.basename(folder) != folder:
        return ScoredModel(version, whole or recipe)
    expectation = (
        f"{version} states the name alone of the folder of its images, and its run is not in "
        "`runs`: give `--data_dir`"
    )
    check(settings.data_dir is not None, expectation, data_dir=None, name=folder)
    return ScoredModel(version, {**recipe, "data_dir": settings.data_dir})


def find_version(path):
    """As `exported.find_version`; the error for a run without an export says how to go on."""
    try:
        return exported.find_version(path)
    except FileNotFoundError as missing:
        run = RUNS / path.name
        if not (run / "config.yaml").is_file():
            raise
        if versions := versions_of(SAVED_MODELS / run.name):
            hint = f"Run {run.name!r} has exported {versions[max(versions)]}"
        else:
            go_on = f"{program_call('train')} --run {shlex.quote(run.name)} --resume"
            hint = (
                f"Run {run.name!r} has exported none: let its training end, or go on with: {go_on}"
            )
        raise FileNotFoundError(f"{missing}. {hint}") from None


def completed(settings, model):
    """The settings, with those of the training where they were not given."""
    if settings.dataset is None:
        if not model.recipe:
            raise ValueError(f"{model.version} does not say what it was trained on: give --dataset")
        data_dir = settings.data_dir or model.recipe["data_dir"]
        settings = dataclasses.replace(settings, dataset=model.recipe["dataset"], data_dir=data_dir)
    of_training = model.recipe if model.was_trained_on(settings) else {}
    shared = bool(of_training.get("validation_share"))
    split = settings.split or ("validation" if shared else "test")
    skip_invalid, boxes, of_run = settings.skip_invalid, settings.boxes, of_training.get("boxes")
    if boxes is None or (of_run and identity(boxes) == identity(of_run)):
        boxes = of_run
    if skip_invalid is None:
        skip_invalid = bool(of_training.get("skip_invalid"))
    settings = dataclasses.replace(settings, split=split, skip_invalid=skip_invalid, boxes=boxes)
    images, at_hand = {
        "train": ("the training", of_training),
        "validation": ("a training with --validation_share", shared),
    }.get(split, ("", True))
    expectation = f"`split` can be {split} for the images of {images}"
    settings.check(at_hand, expectation, "model", "dataset", "data_dir")
    return settings


def similarity_of(signature, pairs=None):
    """The learned similarity of rows of arrays.

    Args:
        signature: `score_pairs` or `score_matrix` of a model.
        pairs: How many pairs there will be, for a progress bar; none is shown if None.
    """
    import tensorflow as tf

    bar = progress("Scoring", total=pairs, unit="pair", shown=pairs is not None)

    def similarity(a, b):
        rows = {"embeddings_a": tf.constant(a), "embeddings_b": tf.constant(b)}
        scores = signature(**rows)["similarity"].numpy()
        bar.update(scores.size)
        if bar.n == bar.total:
            bar.close()
        return scores

    return similarity
