"""The settings of `evaluate.py`, checked: what to score and how, and how to compare runs."""

import dataclasses
from typing import Any

from tfdml.checks import check, check_one_of, check_share, unknown_option

NEIGHBOURS = {
    "retrieval": (1, 2, 4, 8),
    "one_per_class": (1, 5),
    "ncm": (1, 5),
    "zero_shot": (1, 5),
}
PLACEMENT = ("ancestors", "weights", "include_roots")  # of `tfdml.evaluation.zero_shot_means`


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What to score, and how.

    Args:
        model: A run's folder in `saved_models/` or `runs/`, whose newest version is taken, or one
            version, or any SavedModel with the signature `embed_images`.
        dataset: Name of the images: {datasets}; those of the training if not given.
        data_dir: Folder of the dataset, for those that are not built in; that of the training if
            neither is given.
        task: `retrieval`: what each image finds among the others, or queries in the gallery of a
            dataset that has one; `one_per_class`: among one image of each class, drawn at random,
            as VehicleID is scored; `ncm`: whether the nearest of the class means is its own, the
            means being of some images of each scored class, drawn at random, and the others
            classified; `zero_shot`: the same without an image of the class, whose mean is that of
            its kin in a hierarchy.
        split: `test` scores the classes that `train.py` leaves for it, of a folder the second half
            in sorted order; `validation` those that `--validation_share` held out, which is the
            default for a model trained so; `train` those that it was trained on, to see how closely
            it fits them; `all` every class, as for a folder of new classes.
        skip_invalid: Leave out unreadable images and sub-folders without images, with a warning,
            where they would be an error; as in the training if not given.
        boxes: `annotated`, for the boxes of the dataset, or a CSV file with the lines
            `path,x1,y1,x2,y2`, paths relative to `data_dir`; of each image the part inside of its
            box is scored. Those of the training if not given, for its images.
        crops: 1 for the whole image; 5 for the corners and the centre of an image of 8 / 7 of the
            sides, 10 for these and their mirror images. Their embeddings, to unit length, are
            averaged, each level for itself.
        mirror: Average the embeddings of an image and of its mirror image likewise, as 10 crops do.
            A model trained with `--mirror` averages their features already.
        batch_size: Images embedded at once; if not given as fit 1 GiB, by their size. Halved where
            the memory does not suffice.
        k: Numbers of neighbours for Recall@K, precision@K and NDCG@K, such as `--k '[1, 10]'`; if
            not given 1, 2, 4 and 8, as far as there are so many. Of the other tasks 1 and 5.
        rank_by: `distance`, the default without `rerank`, which is Euclidean, between embeddings as
            the model gives them or as `level_weights` makes them, and of which mean, variance and
            LDA score over all pairs are told too; or `similarity`: the score that the model
            learned, of every pair of images. It needs a model trained with `--loss pddm` or kin.
        rerank: Rank by the learned similarity only this many images per query, the nearest by
            distance, as for large galleries. Also tells the recall lost by that, on at most 1,000
            queries.
        levels: Score only the first levels of a model with several; all if not given.
        level_weights: Joins the levels of a model with several by these factors, such as
            `[1, 2, 3]`, to unit length, instead of as they are. Each level is also scored alone.
        shots: Images of each class for its mean, of `ncm`, of smaller classes all but one; half of
            each class if not given.
        draws: How many times they, or the gallery of `one_per_class`, are drawn; the mean and the
            deviation of the scores are told.
        hierarchy: CSV file of `zero_shot` with the lines `class,parent`, where a parent may be the
            class of another line; the super-classes of the dataset, under one root, if not given.
        unseen_share: Of `zero_shot`: hold out this share of the scored classes of each parent,
            evenly in their order, and know the others by the means of their images. If not given,
            the scored classes are held out and the training classes known.
        placement: Options of `zero_shot`, such as `--placement.ancestors parent`; the docstring of
            `tfdml.evaluation.zero_shot_means` lists them.
        renormalize_means: Scale class means to unit length, of `ncm` and `zero_shot`.
        nmi: Also cluster, and compare the clusters with the classes by NMI, AMI and the F1 of
            pairs, of `retrieval`.
        cluster_by: `kmeans`; or `affinity_propagation`, of at most 10,000 images.
        restarts: Of k-means, of which the best counts.
        false_match_rate: Also tell how well a threshold on the distance decides whether two images
            are of one class: ROC AUC, equal error rate, and the share of the pairs of one class
            that match where this share of those of two do, such as 0.001. Where the model was
            trained on the same images, also what the threshold of the training classes gives.
            For `rank_by` distance.
        index: Also search by an index of faiss, such as `HNSW32` or `IVF64,Flat`, and tell the
            recall that it loses (`pip install -e ".[search]"`).
        index_parameters: Of the index, such as `nprobe=16` or `efSearch=64`.
        report: Folder for a page to look at, `index.html`: the scores, a map, what queries find,
            which classes are confused. Also for pictures to print, `score_distributions.png` and
            `retrievals.png`, and for TensorBoard's projector, `projector/`.
        export: Folder of a new model: the one that is scored, of a run that is beside it, is also
            written as its next version, with `export_options`, `export_classes` and
            `export_gallery`. Of a `precision` that rounds it tells the Recall@1 beside that of
            the scored model. Of `retrieval` by distance.
        export_options: Options of the export, such as `--export_options.precision int8`; the
            docstring of `tfdml.serving.ExportOptions` lists them. Those of the scored model, but
            for the precision, where not given.
        export_classes: Give the exported model a signature `classify`, which finds the nearest
            means of the scored classes; of a dataset with a gallery, those of its images.
        export_gallery: Give it a signature `neighbours`, which finds the nearest of the scored
            images, 100,000 at most; of a dataset with a gallery, of its images.
        seed: Of k-means, of the intervals, and of all that is drawn at random.
        out: JSON file for the scores; in the run's folder if not given, named after the task and
            the ranking if they are not retrieval by distance, after the images if they are not
            those of the training, and after the options that change the embeddings.
    """

    model: str
    dataset: str | None = None
    data_dir: str | None = None
    task: str = "retrieval"
    split: str | None = None
    skip_invalid: bool | None = None
    boxes: str | None = None
    crops: int = 1
    mirror: bool = False
    batch_size: int | None = None
    k: int | list[int] | None = None
    rank_by: str | None = None
    rerank: int | None = None
    levels: int | None = None
    level_weights: list[float] | None = None
    shots: int | None = None
    draws: int = 10
    hierarchy: str | None = None
    unseen_share: float | None = None
    placement: dict[str, Any] = dataclasses.field(default_factory=dict)
    renormalize_means: bool = False
    nmi: bool = True
    cluster_by: str = "kmeans"
    restarts: int = 1
    false_match_rate: float | None = None
    index: str | None = None
    index_parameters: str | None = None
    report: str | None = None
    export: str | None = None
    export_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    export_classes: bool = False
    export_gallery: bool = False
    seed: int = 0
    out: str | None = None

    def __post_init__(self):
        check_one_of((None, "test", "validation", "train", "all"), split=self.split)
        counts = self.k if isinstance(self.k, list) else [1 if self.k is None else self.k]
        check(counts and min(counts) > 0, "`k` must be numbers > 0", k=self.k)
        if self.rank_by is None:
            ranking = "distance" if self.rerank is None else "similarity"
            object.__setattr__(self, "rank_by", ranking)
        check_one_of(("distance", "similarity"), rank_by=self.rank_by)
        if self.rerank is not None:
            check(
                self.rank_by == "similarity",
                "`rerank` orders images by the learned similarity: leave out `rank_by`",
                rank_by=self.rank_by,
                rerank=self.rerank,
            )
            check(
                self.rerank >= max(counts), "`rerank` must be >= `k`", rerank=self.rerank, k=self.k
            )
        if self.level_weights is not None:
            check(
                self.rank_by == "distance",
                "`level_weights` are for `rank_by` distance",
                rank_by=self.rank_by,
                level_weights=self.level_weights,
            )
            check(
                min(self.level_weights, default=-1) >= 0 < max(self.level_weights, default=0),
                "`level_weights` must be >= 0, and not all 0",
                level_weights=self.level_weights,
            )
        self.check_task()
        self.check_views()
        self.check_export()
        check(0 <= self.seed < 2**32, "`seed` must be >= 0 and < 2**32", seed=self.seed)
        check(self.restarts > 0, "`restarts` must be > 0", restarts=self.restarts)
        check_one_of(("kmeans", "affinity_propagation"), cluster_by=self.cluster_by)
        check(
            self.cluster_by == "kmeans" or self.restarts == 1,
            "`restarts` are of k-means",
            cluster_by=self.cluster_by,
            restarts=self.restarts,
        )
        if self.false_match_rate is not None:
            check_share(false_match_rate=self.false_match_rate)
        for name in ("index", "false_match_rate"):
            value = getattr(self, name)
            check(
                value is None or self.rank_by == "distance",
                f"`{name}` is for `rank_by` distance",
                rank_by=self.rank_by,
                **{name: value},
            )
        check(self.index != "", "`index` must be a name of faiss, such as HNSW32", index="")
        check(
            self.nmi or (self.cluster_by == "kmeans" and self.restarts == 1),
            "`cluster_by` and `restarts` are of the clusters of `nmi`",
            nmi=self.nmi,
            cluster_by=self.cluster_by,
            restarts=self.restarts,
        )
        check(
            self.index is not None or self.index_parameters is None,
            "`index_parameters` are those of an `index`",
            index_parameters=self.index_parameters,
        )

    def check_task(self):
        """Refuses options of other tasks, and those out of range."""
        check_one_of(NEIGHBOURS, task=self.task)
        tasks_of_options = {
            "rank_by": ("retrieval", "one_per_class"),
            "rerank": ("retrieval",),
            "false_match_rate": ("retrieval",),
            "index": ("retrieval",),
            "report": ("retrieval",),
            "export": ("retrieval",),
            "cluster_by": ("retrieval",),
            "restarts": ("retrieval",),
            "shots": ("ncm",),
            "draws": ("ncm", "one_per_class"),
            "hierarchy": ("zero_shot",),
            "unseen_share": ("zero_shot",),
            "placement": ("zero_shot",),
            "renormalize_means": ("ncm", "zero_shot"),
        }
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        usual |= {"rank_by": "distance", "placement": {}}
        for name, tasks in tasks_of_options.items():
            value = getattr(self, name)
            check(
                self.task in tasks or repr(value) == repr(usual[name]),
                f"`{name}` is an option of the task {' and '.join(tasks)}",
                task=self.task,
                **{name: value},
            )
        for name in ("shots", "draws"):
            value = getattr(self, name)
            check(value is None or value > 0, f"`{name}` must be > 0", **{name: value})
        share = self.unseen_share
        check(
            share is None or 0 < share < 1,
            "`unseen_share` must be > 0 and < 1",
            unseen_share=share,
        )
        for option in self.placement:
            if option not in PLACEMENT:
                raise ValueError(unknown_option("`placement`", option, PLACEMENT))

    def check_export(self):
        """Refuses options without an export, and an export of what is not scored."""
        for name in ("export_options", "export_classes", "export_gallery"):
            value = getattr(self, name)
            check(
                self.export is not None or not value,
                f"`{name}` is an option of `export`",
                export=self.export,
                **{name: value},
            )
        changes = {
            "rank_by": (self.rank_by, "distance"),
            "crops": (self.crops, 1),
            "mirror": (self.mirror, False),
            "levels": (self.levels, None),
            "level_weights": (self.level_weights, None),
        }
        for name, (value, usual) in changes.items():
            check(
                self.export is None or value == usual,
                f"`export` is of a model that is scored as it is served, with `{name}` {usual}",
                export=self.export,
                **{name: value},
            )

    def check_views(self):
        """Refuses ways to embed that do not go together, and those out of range."""
        check_one_of((1, 5, 10), crops=self.crops)
        check(
            not (self.mirror and self.crops == 10),
            "10 `crops` have the mirror images already: leave out `mirror`",
            crops=self.crops,
            mirror=self.mirror,
        )
        check(
            self.rank_by == "distance"
            or (self.crops == 1 and not self.mirror and self.levels is None),
            "`crops`, `mirror` and `levels` are for `rank_by` distance",
            rank_by=self.rank_by,
            crops=self.crops,
            mirror=self.mirror,
            levels=self.levels,
        )
        for name in ("batch_size", "levels"):
            value = getattr(self, name)
            check(value is None or value > 0, f"`{name}` must be > 0", **{name: value})


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How to compare runs.

    Args:
        confidence: Of the intervals, which are over classes drawn anew: how the scores would fall
            on other classes. They do not cover the seed of a training.
        rounds: Draws of classes.
        seed: Of the draws.
        out: JSON file for the comparison; none if not given.
    """

    confidence: float = 0.95
    rounds: int = 1000
    seed: int = 0
    out: str | None = None
