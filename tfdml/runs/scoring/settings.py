"""The settings that every task of `evaluate.py` has, checked."""

import dataclasses
from typing import ClassVar

from tfdml.checks import check, check_one_of, check_positive
from tfdml.runs.settings import Settings

OF_EMBEDDINGS = ("crops", "mirror", "levels", "level_weights", "dims")  # what changes them


@dataclasses.dataclass(frozen=True)
class Scoring(Settings):
    """Which model to score, on which images.

    Args:
        model: A run's folder in `saved_models/` or `runs/`, whose newest version is taken, or one
            version, or any SavedModel with the signature `embed_images`.
        dataset: Name of the images: {datasets}; those of the training if not given.
        data_dir: Folder of the dataset, of `csv` also the file, for those that are not built in. If
            neither `dataset` nor `data_dir` is given, that of the training.
        split: `test` scores the classes that `train.py` leaves for it, of a folder the second half
            in sorted order; `validation` those that `--validation_share` held out, which is the
            default for a model trained so; `train` those that it was trained on, to see how closely
            it fits them; `all` every class, as for a folder of new classes.
        skip_invalid: Leave out unreadable images and sub-folders without images, with a warning,
            where they would be an error; as in the training if not given.
        boxes: `annotated`, for the boxes of the dataset, or a CSV file with the lines
            `path,x1,y1,x2,y2`, paths relative to `data_dir`; of each image the part inside of its
            box is scored. If not given, images of the training are cut to the boxes of the
            training.
        crops: 1 for the whole image; 5 for the corners and the centre of an image of the training's
            `warp_size`, or without one of 8 / 7 of the sides; 10 for these and their mirror images.
            Their embeddings, to unit length, are averaged, each level for itself.
        mirror: Average the embeddings of an image and of its mirror image likewise, as 10 crops do.
            A model trained with `--mirror` averages their features already.
        batch_size: Images embedded at once; if not given, as many as fit 1 GiB, 256 at most. Halved
            where the memory does not suffice.
        k: Numbers of neighbours, such as `--k '[1, 10]'`; if not given {neighbours}, as far as
            there are so many.
        levels: Score only the first levels of a model with several; all if not given.
        level_weights: Factors of the levels of a model with several, such as `[1, 2, 3]`. Each
            level is scaled to unit length, multiplied by its factor and joined to the others, and
            the whole has unit length. If not given, the levels are joined as they are.
        dims: Score only the first dimensions of the embeddings, to unit length where the whole ones
            are, as of a model trained with the loss `matryoshka`; all if not given.
        seed: Seed of all that is drawn at random.
        out: JSON file for the scores. If not given, a file in `runs/NAME`, whose name states the
            task, the images if they are not those of the training, and the options that change
            the scores.
    """

    task: ClassVar[str]
    neighbours: ClassVar[tuple] = (1, 5)
    paths: ClassVar[tuple] = ("model", "data_dir", "boxes", "out")
    naming: ClassVar[tuple] = ()  # options of the task whose values are in the name of the file
    rank_by = "distance"  # a field of the tasks that also rank by a similarity

    model: str
    dataset: str | None = None
    data_dir: str | None = None
    split: str | None = None
    skip_invalid: bool | None = None
    boxes: str | None = None
    crops: int = 1
    mirror: bool = False
    batch_size: int | None = None
    k: int | list[int] | None = None
    levels: int | None = None
    level_weights: list[float] | None = None
    dims: int | None = None
    seed: int = 0
    out: str | None = None

    def __post_init__(self):
        check_one_of((None, "test", "validation", "train", "all"), split=self.split)
        check_one_of(("distance", "similarity"), rank_by=self.rank_by)
        check_one_of((1, 5, 10), crops=self.crops)
        check_positive(**self.given("batch_size", "levels", "dims"))
        self.check(self.counts and min(self.counts) > 0, "`k` must be numbers > 0")
        advice = "10 `crops` have the mirror images already: leave out `mirror`"
        self.check(not (self.mirror and self.crops == 10), advice)
        if self.rank_by == "similarity":
            self.check_default(OF_EMBEDDINGS, "`{name}` is for `rank_by` distance")
        if self.level_weights is not None:
            valid = min(self.level_weights, default=-1) >= 0 < max(self.level_weights, default=0)
            self.check(valid, "`level_weights` must be >= 0, and not all 0")
        self.check(0 <= self.seed < 2**32, "`seed` must be >= 0 and < 2**32")

    @property
    def counts(self):
        """The numbers of neighbours as a list."""
        return self.k if isinstance(self.k, list) else [1 if self.k is None else self.k]

    @property
    def changes_embeddings(self):
        """Whether the embeddings are others than those that a similarity learned."""
        return bool(self.changed(OF_EMBEDDINGS))

    @property
    def words(self):
        """Parts of the name of the file of the scores, for the options of the task."""
        return [self.task]

    @property
    def ranking(self):
        """How images are ranked or classified, in words; empty for the usual way."""
        return ""

    def prepare(self, model, images):
        """What is scored of the images, of which a class must have two or more."""
        count, classes = len(images.split.labels), images.split.num_classes
        check(classes < count, "a class must have 2 images or more", images=count, classes=classes)
        return images

    def most_neighbours(self, images):
        """What is counted by `k`, in words, and how many there are."""
        return "means", images.split.num_classes

    def with_neighbours(self, images):
        """The settings with `k`, at most the number of neighbours that there are."""
        what, most = self.most_neighbours(images)
        if self.k is None:
            return dataclasses.replace(self, k=[k for k in self.neighbours if k <= most] or [1])
        check(max(self.counts) <= most, f"`k` must not exceed the {what}", k=self.k, **{what: most})
        return self
