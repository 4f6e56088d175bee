"""The exported model that is scored, with the recipe of its run."""

import dataclasses
import functools
import os
import pathlib
from typing import Any

from pipelines.datasets import place_of
from tfdml.checks import check
from tfdml.files import identity
from tfdml.quiet import import_tensorflow, progress
from tfdml.runs.run_images import preprocessing_of
from tfdml.runs.stored import read_embeddings
from tfdml.runs.task_options import CHANGING, NO_FILE, OF_FILES
from tfdml.serving import exported
from tfdml.serving.metadata import read_metadata
from tfdml.serving.versions import name_of


@dataclasses.dataclass(frozen=True)
class ScoredModel:
    """A version of an exported model, or the unknown one of a file of embeddings."""

    version: Any  # its path; None if unknown
    recipe: dict  # {name: value}, the settings of its training; empty if unknown
    metadata: dict = dataclasses.field(default_factory=dict)
    name: str = ""  # of the folder of its versions, or of the SavedModel if it has no number
    stored: Any = None  # `Stored` embeddings, where the file of them is there

    def was_trained_on(self, options):
        """Whether the images to score are of the dataset and folder of the training."""
        places = {
            folder and identity(place_of(options.dataset, folder))
            for folder in (self.recipe.get("data_dir"), options.data_dir)
        }
        return self.recipe.get("dataset") == options.dataset and len(places) == 1

    @functools.cached_property
    def signatures(self):
        import_tensorflow()
        return exported.load_signatures(self.version, self.metadata.get("fingerprint", ""))

    @functools.cached_property
    def width(self):
        """Numbers of an embedding, of all levels."""
        if self.stored:
            return self.stored.embeddings.shape[1]
        return self.signatures["embed_images"].structured_outputs["embedding"].shape[1]

    @property
    def preprocessing(self):
        """How the images of the training were brought to their size."""
        mean = self.version / "assets.extra" / exported.MEAN_IMAGE
        return preprocessing_of(self.recipe, mean if self.recipe.get("mean_image") else None)

    def similarity(self, name, pairs=None):
        """The learned similarity of rows by a signature; a progress bar shows how many `pairs`."""
        bar = progress("Scoring", total=pairs, unit="pair", shown=pairs is not None)

        def similarity(a, b):
            scores = self.signatures[name](embeddings_a=a, embeddings_b=b)["similarity"].numpy()
            bar.update(scores.size)
            if bar.n == bar.total:
                bar.close()
            return scores

        return similarity


def find_model(options):
    """The `ScoredModel` of the options, whose metadata are read here alone."""
    path, stored = options.embeddings, None
    if path and (options.model is None or os.path.exists(path)):
        stored = read_embeddings(path)
    if options.model is None:
        return ScoredModel(None, {}, name=pathlib.Path(path).stem, stored=stored)
    version = exported.find_version(pathlib.Path(options.model))
    metadata, name = read_metadata(version), name_of(version).partition("/")[0]
    recipe = exported.recipe_in(metadata)
    if whole := exported.config_of(version, recipe):
        return ScoredModel(version, whole, metadata, name, stored)
    folder = recipe.get("data_dir")
    if not options.dataset and folder and os.path.basename(folder) == folder:
        expectation = (
            f"{version} states the name alone of the folder of its images, and its run is not in "
            "`runs`: give `--data_dir`"
        )
        check(options.data_dir is not None, expectation, data_dir=None, name=folder)
        recipe = {**recipe, "data_dir": options.data_dir}
    return ScoredModel(version, recipe, metadata, name, stored)


def completed(options, model):
    """The options, with those of the training where they were not given."""
    if model.version is None:
        return options
    if options.dataset is None:
        if not model.recipe:
            raise ValueError(f"{model.version} does not say what it was trained on: give --dataset")
        data_dir = options.data_dir or model.recipe["data_dir"]
        options = dataclasses.replace(options, dataset=model.recipe["dataset"], data_dir=data_dir)
    recipe = model.recipe if model.was_trained_on(options) else {}
    shared = bool(recipe.get("validation_share"))
    given = {name: getattr(options, name) or recipe.get(name) for name in OF_FILES}
    files = {name: None if path == NO_FILE else path for name, path in given.items()}
    skip_invalid = options.skip_invalid
    if skip_invalid is None:
        skip_invalid = bool(recipe.get("skip_invalid"))
    split = options.split or ("validation" if shared else "test")
    options = dataclasses.replace(options, split=split, skip_invalid=skip_invalid, **files)
    images, at_hand = {
        "train": ("the training", recipe),
        "validation": ("a training with --validation_share", shared),
    }.get(split, ("", True))
    expectation = f"`split` can be {split} for the images of {images}"
    options.check(at_hand, expectation, "model", "dataset", "data_dir")
    return options


def untrained_scores(options, model, images):
    """{name: value} of the network before its training, of the same number of images; else {}."""
    trained, recipe = model.metadata.get("scores") or {}, model.recipe
    is_same = (
        "trained" in trained
        and model.was_trained_on(options)
        and options.rank_by == "distance"
        and options.split == trained.get("scored_classes")
        and all(getattr(options, name) == recipe.get(name) for name in OF_FILES)
        and trained.get("scored_images", images) == images
        and not options.changed(CHANGING)
    )
    return trained.get("untrained", {}) if is_same else {}
