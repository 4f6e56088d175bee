"""The options of each task of `evaluate.py`."""

import dataclasses
from typing import Any, ClassVar, Literal

from tfdml.checks import check_options
from tfdml.command_line import NotNegative, OpenShare, PositiveInt, Seed, Settings, Share
from tfdml.serving.options import ExportOptions, export_options

CHANGING = ("crops", "mirror", "levels", "level_weights", "dims", "pca")  # what changes embeddings
RERANKING = ("expand_queries", "reciprocal")  # by distance, of images that search
STORED = "stored"  # `index` of the index in the folder of the gallery
BY_DISTANCE = "`{name}` is for `rank_by` distance"
_AS_SERVED = "`export` is of a model that is scored as it is served, with `{name}` {default}"
_OF_EXPORT = ("export_options", "export_classes", "export_gallery")
OF_FILES = ("boxes", "exclude", "relabel")  # CSV files that `pipelines.load` reads
NO_FILE = "none"  # in place of that of the training
OF_IMAGES = ("dataset", "data_dir", "split", "skip_invalid", *OF_FILES, "crops", "mirror")


@dataclasses.dataclass(frozen=True)
class Scoring(Settings):
    """Which model to score, on which images.

    Args:
        model: A run's folder in `saved_models/` or `runs/`, for its newest version, one version, or
            any SavedModel with `embed_images`. None scores the file of `embeddings`.
        embeddings: NumPy archive (.npz). With a model, its embeddings of the images are written
            there, and read again instead of embedding the same images. Without one, it has
            `embeddings`, (n, dim) floats, and `labels`, (n,) integers or texts; it may have
            `queries`, (n,) booleans, of rows that search among the others, and `ids`, (n,) texts,
            which are paths of the images if there is to be a report.
        dataset: Name of the images: {datasets}; those of the training if not given.
        data_dir: Folder of the dataset, of `csv` also the file, for those that are not built in. If
            neither `dataset` nor `data_dir` is given, that of the training.
        split: `test` scores the classes that `train.py` leaves for it, of a folder the second half
            in sorted order; `validation` those that `--validation_share` held out, which is the
            default for a model trained so; `train` those that it was trained on, to see how closely
            it fits them; `all` every class, as for a folder of new classes.
        skip_invalid: Leave out unreadable images and sub-folders without images, with a warning;
            as in the training if not given.
        boxes: `annotated`, for the boxes of the dataset, or a CSV file with the lines
            `path,x1,y1,x2,y2`, paths relative to `data_dir`: images are cut to their boxes. If not
            given, those of the training to the boxes of the training.
        exclude: CSV file of images to leave out, with a column `path`, relative to `data_dir`; of
            one that the task `audit` writes, the lines whose `suggestion` is `exclude`. That of the
            training if not given, unless it is `none`.
        relabel: CSV file of new labels, likewise, with the columns `path` and `label`; of one of an
            audit, the lines whose `suggestion` is `relabel CLASS`.
        crops: 1 for the whole image; 5 for the corners and the centre of an image of the training's
            `warp_size`, or without one of 8 / 7 of the sides; 10 for these and their mirror images.
            Their embeddings, to unit length, are averaged, each level for itself.
        mirror: Average the embeddings of an image and of its mirror image likewise. A model trained
            with `--mirror` averages their features already.
        batch_size: Images embedded at once; if not given, as many as fit 1 GiB, 256 at most. Halved
            where the memory does not suffice.
        k: Numbers of neighbours, such as `--k '[1, 10]'`; if not given {neighbours}, as far as
            there are so many.
        levels: Score only the first levels of a model with several; all if not given.
        level_weights: Factors of the levels of a model with several, such as `[1, 2, 3]`, each of
            unit length, before they are joined. If not given, they are joined as they are.
        dims: Score only the first dimensions of the embeddings, to unit length where the whole ones
            are, as of a model trained with the loss `matryoshka`; all if not given.
        pca: Score this many principal components of the embeddings, found on those of the training
            images, to unit length where the whole ones are.
        whiten: Scale these components to variance 1 on the training images.
        seed: Seed of all that is drawn at random.
        out: JSON file for the scores. If not given, one in `runs/NAME` that states the task, the
            images if they are not those of the training, and the options that change the scores.
    """

    task: ClassVar[str]
    neighbours: ClassVar[tuple] = (1, 5)
    paths: ClassVar[tuple] = ("model", "embeddings", "data_dir", *OF_FILES, "out")
    omissible: ClassVar[tuple] = ("model",)
    rank_by = "distance"  # these are fields of some tasks
    draws = export = gallery = index = report = rerank = expand_queries = reciprocal = None

    model: str
    embeddings: str | None = None
    dataset: str | None = None
    data_dir: str | None = None
    split: Literal["test", "validation", "train", "all"] | None = None
    skip_invalid: bool | None = None
    boxes: str | None = None
    exclude: str | None = None
    relabel: str | None = None
    crops: Literal[1, 5, 10] = 1
    mirror: bool = False
    batch_size: PositiveInt | None = None
    k: PositiveInt | list[PositiveInt] | None = None
    levels: PositiveInt | None = None
    level_weights: list[float] | None = None
    dims: PositiveInt | None = None
    pca: PositiveInt | None = None
    whiten: bool = False
    seed: Seed = 0
    out: str | None = None

    def __post_init__(self):
        if self.model is None:
            self.check(self.embeddings, "give a `model`, or a file of `embeddings`")
            self.check_default((*OF_IMAGES, "pca"), "`{name}` needs a `model`")
            learned = "the learned similarity, of `rerank` or `rank_by`, needs a `model`"
            self.check(self.rank_by == "distance", learned)
        self.check(self.k != [], "`k` must be numbers > 0")
        self.check(self.pca or not self.whiten, "`whiten` is of the components of `pca`")
        advice = "10 `crops` have the mirror images already: leave out `mirror`"
        self.check(not (self.mirror and self.crops == 10), advice)
        if self.rank_by == "similarity":
            self.check_default(CHANGING, BY_DISTANCE)
        if self.level_weights is not None:
            valid = min(self.level_weights, default=-1) >= 0 < max(self.level_weights, default=0)
            self.check(valid, "`level_weights` must be >= 0, and not all 0")

    @property
    def counts(self):
        """The numbers of neighbours as a list."""
        return self.k if isinstance(self.k, list) else [1 if self.k is None else self.k]


@dataclasses.dataclass(frozen=True)
class Exporting(Scoring):
    """Whether to write the model.

    Args:
        export: Folder to which the scored model, whose run must be beside it in `runs/`, is also
            written, as the next version. If its weights are rounded, its metadata state their
            Recall@1 beside that of the scored model. For `rank_by` distance.
        export_options: Options of the export, such as `--export_options.precision int8`; the
            docstring of `tfdml.serving.ExportOptions` lists them. Others are those of the scored
            model, except `precision`, which is float32.
        export_classes: Give the exported model a signature `classify`, which finds the nearest
            means of the scored classes; of a dataset with a gallery, those of its images. The task
            open_set always does.
        export_gallery: Give it a signature `neighbours`, which finds the nearest of the scored
            images, 100,000 at most; of a dataset with a gallery, of its images.
    """

    paths: ClassVar[tuple] = (*Scoring.paths, "export")
    options_of: ClassVar = {"export_options": ExportOptions}

    export: str | None = None
    export_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    export_classes: bool = False
    export_gallery: bool = False

    def __post_init__(self):
        super().__post_init__()
        self.check_rules(
            (self.model is None, ("export",), "`{name}` needs a `model`"),
            (not self.export, _OF_EXPORT, "`{name}` is an option of `export`"),
            (self.export, CHANGING[:-1], _AS_SERVED),
        )
        export_options(self.export_options)  # raises for wrong ones


@dataclasses.dataclass(frozen=True)
class Retrieval(Exporting):
    """What each image finds among the others, or queries in the gallery of a dataset with one.

    Args:
        rank_by: `distance`, the default without `rerank`: the Euclidean distance of the embeddings,
            as the model gives them or as `level_weights` makes them; its mean, variance and LDA
            score over all pairs are printed too. Or `similarity`: the score that the model learned,
            of every pair of images, for a loss that learns one, such as `--loss pddm`.
        rerank: Rank by the learned similarity only this many images per query, the nearest by
            distance, and measure the recall that this loses, on at most 1,000 queries.
        expand_queries: Search with the mean of each image and this many of its nearest, weighted by
            powers of their cosines (`tfdml.evaluation.expand_queries`).
        expansion_alpha: That power.
        reciprocal: Rank by the mutual neighbours among this many nearest
            (`tfdml.evaluation.k_reciprocal_distances`).
        reciprocal_options: Such as `--reciprocal_options.k2 6`, over how many nearest codes are
            averaged, or `original_weight`, the share of the distance itself.
        nmi: Also cluster, and compare the clusters with the classes by NMI, AMI and the F1 of
            pairs.
        cluster_by: `kmeans`; or `affinity_propagation`, of at most 10,000 images.
        restarts: Number of k-means restarts; the best is kept.
        false_match_rate: Also score verification, whether a distance threshold decides that two
            images are of one class: ROC AUC, equal error rate, and the true match rate at this
            false match rate, such as 0.001. Where the model was trained on the same images, also
            the rates of the threshold that the training classes give. For `rank_by` distance.
        gallery: Folder that `python -m tfdml.scale embed` wrote with this model, to search in; its
            labels are compared with the names of the classes. An image that is in it too, as the
            same file, does not find itself. Without clusters and statistics of pairs.
        index: Also search by an index of faiss, such as `HNSW32` or `IVF64,Flat`, and measure the
            recall that it loses (`pip install -e ".[search]"`). With `gallery`, `stored`: search by
            the index of that folder instead, and measure its loss on at most 1,000 of the images.
        index_parameters: Of the index, such as `nprobe=16` or `efSearch=64`.
        report: Folder for a page to look at, `index.html`: the scores, a map, what queries find,
            which classes are confused. Also for pictures to print, `score_distributions.png` and
            `retrievals.png`, and for TensorBoard's projector, `projector/`.
    """

    task: ClassVar[str] = "retrieval"
    neighbours: ClassVar[tuple] = (1, 2, 4, 8)
    paths: ClassVar[tuple] = (*Exporting.paths, "gallery", "report")

    rank_by: Literal["distance", "similarity"] | None = None
    rerank: PositiveInt | None = None
    expand_queries: PositiveInt | None = None
    expansion_alpha: NotNegative = 3.0
    reciprocal: PositiveInt | None = None
    reciprocal_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    nmi: bool = True
    cluster_by: Literal["kmeans", "affinity_propagation"] = "kmeans"
    restarts: PositiveInt = 1
    false_match_rate: Share | None = None
    gallery: str | None = None
    index: str | None = None
    index_parameters: str | None = None
    report: str | None = None

    def __post_init__(self):
        if self.rank_by is None:
            ranking = "distance" if self.rerank is None else "similarity"
            object.__setattr__(self, "rank_by", ranking)
        super().__post_init__()
        found = "embeddings of a `gallery` are those of the model as it is served, by distance"
        not_with_gallery = ("cluster_by", "restarts", "false_match_rate", "report", "export")
        self.check_rules(
            (self.model is None, ("gallery",), "`{name}` needs a `model`"),
            (self.rank_by == "similarity", ("index", "false_match_rate", *RERANKING), BY_DISTANCE),
            (not self.nmi, ("cluster_by", "restarts"), "`{name}` is of the clusters of `nmi`"),
            (self.cluster_by != "kmeans", ("restarts",), "`{name}` are of k-means, `cluster_by`"),
            (not self.index, ("index_parameters",), "`{name}` are those of an `index`"),
            (self.export, RERANKING, _AS_SERVED),
            (self.gallery, ("rerank", *CHANGING, *RERANKING), f"{found}: leave out `{{name}}`"),
            (self.reciprocal, RERANKING[:1], "`{name}` changes queries, `reciprocal` distances"),
            (not self.expand_queries, ("expansion_alpha",), "`{name}` is of `expand_queries`"),
            (not self.reciprocal, ("reciprocal_options",), "`{name}` are those of `reciprocal`"),
            (self.gallery, not_with_gallery, "`{name}` does not go with a `gallery`"),
        )
        by_distance = self.rank_by == "distance"
        served = _AS_SERVED.format(name="rank_by", default="distance")
        self.check(by_distance or not self.export, served)
        self.check(by_distance or not self.gallery, f"{found}: leave out `rank_by`")
        if self.rerank is not None:
            expectation = "`rerank` orders images by the learned similarity: leave out `rank_by`"
            self.check(not by_distance, expectation)
            self.check(self.rerank >= max(self.counts), "`rerank` must be >= `k`", "k")
        if self.gallery:
            expectation = "the `index` of a `gallery` is `stored` with it"
            self.check(self.index in (None, STORED), expectation)
        else:
            self.check(self.index != STORED, "`index` can be stored for a `gallery`")
        check_options("`reciprocal`", self.reciprocal_options, ("k2", "original_weight"))


@dataclasses.dataclass(frozen=True)
class OnePerClass(Scoring):
    """Retrieval among one image of each class, drawn at random, as VehicleID is scored.

    Args:
        rank_by: `distance`, Euclidean; or `similarity`, the score that the model learned.
        draws: Number of draws of the gallery, over which scores have a mean and a deviation.
    """

    task: ClassVar[str] = "one_per_class"

    rank_by: Literal["distance", "similarity"] = "distance"
    draws: PositiveInt = 10


@dataclasses.dataclass(frozen=True)
class NearestClassMean(Scoring):
    """Whether the nearest class mean is that of the class of an image.

    The means are of some images of each scored class, drawn at random; the others are classified.

    Args:
        shots: Images of each class for its mean, of smaller classes all but one; half of each class
            if not given.
        draws: Number of draws of these images, over which scores have a mean and a deviation.
        renormalize_means: Scale class means to unit length.
    """

    task: ClassVar[str] = "ncm"

    shots: PositiveInt | None = None
    draws: PositiveInt = 10
    renormalize_means: bool = False


@dataclasses.dataclass(frozen=True)
class ZeroShot(Scoring):
    """Whether the nearest class mean is that of an image whose class has no images.

    The mean of such a class is that of its related classes in a hierarchy.

    Args:
        hierarchy: CSV file with the lines `class,parent`, where a parent may be the class of
            another line; the super-classes of the dataset, under one root, if not given.
        unseen_share: Hold out this share of the scored classes of each parent, evenly in their
            order; the others are known by the means of their images. If not given, the scored
            classes are held out and the training classes known.
        placement: Options such as `--placement.ancestors parent`; the docstring of
            `tfdml.evaluation.zero_shot_means` lists them.
        renormalize_means: Scale class means to unit length.
    """

    task: ClassVar[str] = "zero_shot"
    paths: ClassVar[tuple] = (*Scoring.paths, "hierarchy")

    hierarchy: str | None = None
    unseen_share: OpenShare | None = None
    placement: dict[str, Any] = dataclasses.field(default_factory=dict)
    renormalize_means: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_options("`placement`", self.placement, ("ancestors", "weights", "include_roots"))


@dataclasses.dataclass(frozen=True)
class OpenSet(Exporting):
    """Whether an image is of one of the known classes, and of which, or of none of them.

    Half of the scored classes choose how to decide, the others are scored with that. In each half,
    each class is unknown once, in five rounds, among others that are known by half of their images.
    An exported model decides between all scored classes and none of them, by the same choice.

    Args:
        draws: Number of draws of the halves, over which scores have a mean and an interval.
        false_alarm_rate: Share of the images of unknown classes that may count as known.
        report: Folder for `reliability.png`: how often images are classified rightly beside the
            probability for it, over all draws.
    """

    task: ClassVar[str] = "open_set"
    paths: ClassVar[tuple] = (*Exporting.paths, "report")

    draws: PositiveInt = 10
    false_alarm_rate: Share = 0.01
    report: str | None = None

    def __post_init__(self):
        super().__post_init__()
        self.check_default(("k",), "`{name}` is not for the task open_set")


@dataclasses.dataclass(frozen=True)
class Audit(Scoring):
    """What is wrong with the images: duplicates, leaks, labels, outliers, classes.

    The docstring of `tfdml.evaluation.audit` defines each. The findings are written to a CSV file
    beside the scores, with the columns `path,finding,score,suggestion,other`, the surest first;
    `--exclude` and `--relabel` of `tfdml-train` and of this program read it. All images are looked
    at if `split` is not given.

    Args:
        report: Folder for a page with the pictures of the findings, `index.html`.
    """

    task: ClassVar[str] = "audit"
    paths: ClassVar[tuple] = (*Scoring.paths, "report")

    report: str | None = None

    def __post_init__(self):
        super().__post_init__()
        self.check_default(("k",), "`{name}` is not for the task audit")
        if self.split is None and self.model is not None:
            object.__setattr__(self, "split", "all")


_KINDS = (Retrieval, OnePerClass, NearestClassMean, ZeroShot, OpenSet, Audit)
TASKS = {kind.task: kind for kind in _KINDS}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How to compare runs.

    Args:
        confidence: Of the intervals, which are over classes drawn anew: how the scores would differ
            on other classes. They do not cover the seed of a training.
        rounds: Draws of classes.
        seed: Of the draws.
        out: JSON file for the comparison; none if not given.
    """

    paths: ClassVar = ("out",)

    confidence: float = 0.95
    rounds: int = 1000
    seed: int = 0
    out: str | None = None
