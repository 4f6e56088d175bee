"""Scores an exported embedder, or a folder of one, on classes that it was not trained on.

    python evaluate.py saved_models/glyphs_lifted
    python evaluate.py saved_models/glyphs_lifted --dataset folder --data_dir photos --split all
    python evaluate.py saved_models/glyphs_pddm --rank_by similarity --report
    python evaluate.py saved_models/glyphs_lifted --task ncm --shots 5
    python evaluate.py --compare runs/glyphs_lifted runs/glyphs_pddm

Prints Recall@K, NMI and how far positive and negative pairs lie apart, and writes them to
runs/NAME/evaluation.json, of other images than those of the training to evaluation_DATASET.json, or
where --out says. --report draws what lies behind them. --compare puts runs that were scored on the
same images side by side, and tells how surely they differ from the first.
"""

import dataclasses
import json
import os
import pathlib
import re
import sys
import warnings
from typing import Any

import yaml

import pipelines
from tfdml.checks import check, check_one_of, unknown_name, unknown_option
from tfdml.command_line import Parser, check_writable, one_sentence, write_text
from tfdml.serving.versions import newest_version

PROGRAM = "evaluate.py"
COMPARE = "--compare"
NEIGHBOURS = {"retrieval": (1, 2, 4, 8), "ncm": (1, 5), "zero_shot": (1, 5)}
PLACEMENT = ("ancestors", "weights", "include_roots")  # of `tfdml.evaluation.zero_shot_means`
COMPARED_QUERIES = 1000  # ranked exactly too, to tell what --rerank loses


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What to score, and how.

    Args:
        model: A run's folder in `saved_models/`, whose newest version is taken, or one version, or
            any SavedModel with the signature `embed_images`.
        dataset: Name of the images: {datasets}; those of the training if not given.
        data_dir: Folder of the dataset, for those that are not built in; that of the training if
            neither is given.
        task: `retrieval`: what each image finds among the others; `ncm`: whether the nearest of the
            class means is its own, the means being of some images of each scored class, drawn at
            random, and the others classified; `zero_shot`: the same without an image of the class,
            whose mean is that of its kin in a hierarchy.
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
        k: Numbers of neighbours for Recall@K, such as `--k '[1, 10]'`; if not given 1, 2, 4 and 8,
            as far as there are so many. Of the other tasks, of the nearest means: 1 and 5.
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
        shots: Images of each class for its mean, of `ncm`; half of each class if not given.
        draws: How many times they are drawn; the mean and the deviation of the scores are told.
        hierarchy: CSV file of `zero_shot` with the lines `class,parent`, where a parent may be the
            class of another line; the super-classes of the dataset, under one root, if not given.
        unseen_share: Of `zero_shot`: hold out this share of the scored classes of each parent,
            evenly in their order, and know the others by the means of their images. If not given,
            the scored classes are held out and the training classes known.
        placement: Options of `zero_shot`, such as `--placement.ancestors parent`; the docstring of
            `tfdml.evaluation.zero_shot_means` lists them.
        renormalize_means: Scale class means to unit length, of `ncm` and `zero_shot`.
        nmi: Also cluster by k-means and compare the clusters with the classes, of `retrieval`.
        report: Also draw, beside the scores, how pairs of one class and of two score
            (`score_distributions.png`), and what a few queries find (`retrievals.png`), which
            `rerank` does not limit to the nearest.
        seed: Of k-means, and of the queries, pairs and images that are drawn at random.
        restarts: Of k-means, of which the best counts.
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
    report: bool = False
    seed: int = 0
    restarts: int = 1
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
        check(0 <= self.seed < 2**32, "`seed` must be >= 0 and < 2**32", seed=self.seed)
        check(self.restarts > 0, "`restarts` must be > 0", restarts=self.restarts)

    def check_task(self):
        """Refuses options of other tasks, and those out of range."""
        check_one_of(NEIGHBOURS, task=self.task)
        tasks_of_options = {
            "rank_by": ("retrieval",),
            "report": ("retrieval",),
            "shots": ("ncm",),
            "draws": ("ncm",),
            "hierarchy": ("zero_shot",),
            "unseen_share": ("zero_shot",),
            "placement": ("zero_shot",),
            "renormalize_means": ("ncm", "zero_shot"),
        }
        of_every_task = {"rank_by": "distance", "draws": 10, "placement": {}}
        for name, tasks in tasks_of_options.items():
            value = getattr(self, name)
            check(
                self.task in tasks or value in (of_every_task.get(name), False),
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


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    if COMPARE in arguments:
        compare_runs(*parse_comparison([word for word in arguments if word != COMPARE]))
        return
    settings = parse(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with one_sentence(PROGRAM, ValueError, TypeError, OSError):
        version = find_version(pathlib.Path(settings.model))
        recipe = recipe_of(version)
        settings = completed(settings, version, recipe)
        out = pathlib.Path(settings.out)
        check_writable(out.parent)
        if out.is_dir():
            raise IsADirectoryError(f"`out` must be a file. {out} is a folder")
        signatures = load_signatures(settings, version)
        levels, dim = levels_to_score(settings, recipe, signatures["embed_images"])
        dataset = load_dataset(settings)
        split = load_split(settings, version, recipe, dataset)
        if settings.task == "zero_shot":
            known, split, hierarchy = known_and_unseen(settings, version, recipe, dataset, split)
        settings = with_neighbours(settings, split)
        embeddings = embed(settings, signatures["embed_images"], split, levels, dim)
        if settings.task == "retrieval":
            results = score_levels(settings, embeddings, levels, split.labels)
            embeddings = joined(settings, embeddings)
            results = {**score(settings, signatures, embeddings, split.labels), **results}
        elif settings.task == "ncm":
            results = score_few_shot(settings, joined(settings, embeddings), split.labels)
        else:
            of_known = embed(settings, signatures["embed_images"], known, levels, dim)
            rows = (joined(settings, each) for each in (of_known, embeddings))
            results = score_zero_shot(settings, *rows, known.labels, split.labels, hierarchy)
        out.parent.mkdir(parents=True, exist_ok=True)
        told = {**dataclasses.asdict(settings), "scored_levels": levels}
        del told["levels"]  # the name of the scores of each level alone
        content = {"version": str(version), **told, **results}
        write_text(out, json.dumps(content, indent=2) + "\n")
        print(
            f"\n{version} on {len(split.labels):,} images of {split.num_classes:,} classes "
            f"({settings.split}) of {settings.dataset}{ranking(settings)}:\n{table(results)}\n"
            f"Scores: {out}"
        )
        if settings.report:
            pictures = draw(settings, recipe, signatures, embeddings, split)
            print(f"Pictures: {', '.join(map(str, pictures))}")


def parse(arguments):
    """The settings. Imports neither TensorFlow nor Keras."""
    parser = Parser(
        Evaluation,
        names={"datasets": ", ".join(pipelines.names())},
        prog=PROGRAM,
        description=(__doc__ or "").partition("\n")[0],
        epilog=f"{PROGRAM} {COMPARE} --help tells how to compare runs.",
    )
    settings = parser.settings_of(parser.parse_args(arguments))
    if settings.dataset and pipelines.entry_of(settings.dataset) not in pipelines.names():
        parser.error(unknown_name("dataset", settings.dataset, pipelines.names()))
    return settings


def parse_comparison(arguments):
    """The settings of a comparison, and its runs. Imports neither TensorFlow nor Keras."""
    parser = Parser(Comparison, prog=f"{PROGRAM} {COMPARE}", description="Compares scored runs.")
    parser.add_argument(
        "runs",
        nargs="+",
        help="runs/NAME, saved_models/NAME, or files of scores, such as those in them",
    )
    given = parser.parse_args(arguments)
    return parser.settings_of(given), given.runs


def compare_runs(settings, runs):
    """Prints how the scores of runs differ from those of the first, and writes it where asked."""
    from tfdml import evaluation

    with one_sentence(PROGRAM, ValueError, TypeError, OSError):
        check(len(set(runs)) == len(runs), f"`{COMPARE}` needs different runs", runs=runs)
        if settings.out:
            check_writable(pathlib.Path(settings.out).parent)
        scored = {run: evaluation.load_queries(queries_of(run)) for run in runs}
        comparison = evaluation.compare(
            scored, confidence=settings.confidence, rounds=settings.rounds, seed=settings.seed
        )
        print(
            f"{comparison['queries']:,} images of {comparison['classes']:,} classes:\n"
            f"{evaluation.comparison_table(comparison)}"
        )
        if settings.out:
            out = pathlib.Path(settings.out)
            out.parent.mkdir(parents=True, exist_ok=True)
            write_text(out, json.dumps(comparison, indent=2) + "\n")
            print(f"Comparison: {out}")


def queries_of(run):
    """The archive of the values of each query of a run, given by a folder or its file of scores."""
    path = pathlib.Path(run)
    if path.suffix == ".json":
        files = [queries_path(path)]
    else:
        folder = path.resolve()
        folder = folder.parent if folder.name.isdigit() else folder
        folders = [path, pathlib.Path("runs", folder.name)]
        files = [queries_path(folder / "evaluation.json") for folder in folders]
    for file in files:
        if file.is_file():
            return file
    scores = sorted(files[-1].parent.glob("*.json"))
    others = [str(path) for path in scores if queries_path(path).is_file()]
    hint = f"it has scores of other images: {', '.join(others)}" if others else "score it first"
    raise FileNotFoundError(f"{run} has no {files[-1]}: {hint}")


def queries_path(scores):
    """Where the values of each query stand, beside a file of scores."""
    return scores.with_name(f"{scores.stem}_queries.npz")


def find_version(folder):
    """The SavedModel at `folder`, or its newest version."""
    return folder if (folder / "saved_model.pb").is_file() else newest_version(folder)


def completed(settings, version, recipe):
    """The settings, those of the training where they were not given, and the file of the scores."""
    dataset, data_dir = settings.dataset, settings.data_dir
    if dataset is None:
        if not recipe:
            raise ValueError(f"{version} does not say what it was trained on: give --dataset")
        dataset, data_dir = recipe["dataset"], data_dir or recipe["data_dir"]
    settings = dataclasses.replace(settings, dataset=dataset, data_dir=data_dir)
    of_training = recipe if has_images_of(recipe, settings) else {}
    split, skip_invalid = settings.split, settings.skip_invalid
    if split is None:
        split = "validation" if of_training.get("validation_share") else "test"
    if split == "validation" and not of_training.get("validation_share"):
        raise ValueError(
            "`split` can be validation for the images of a training with --validation_share. "
            f"Received: split=validation, model={version}, dataset={dataset}, data_dir={data_dir}"
        )
    if split == "train" and not of_training:
        raise ValueError(
            "`split` can be train for the images of the training. "
            f"Received: split=train, model={version}, dataset={dataset}, data_dir={data_dir}"
        )
    if skip_invalid is None:
        skip_invalid = bool(of_training.get("skip_invalid"))
    boxes = settings.boxes or of_training.get("boxes")
    settings = dataclasses.replace(settings, split=split, skip_invalid=skip_invalid, boxes=boxes)
    folder = version.resolve()
    folder = folder.parent if folder.name.isdigit() else folder
    out = settings.out or f"runs/{folder.name}/{file_name('evaluation', settings, recipe)}.json"
    return dataclasses.replace(settings, out=out)


def file_name(stem, settings, recipe):
    """A name that tells the ranking and the images, but by distance and those of the training."""
    words = [stem] if settings.task == "retrieval" else [stem, settings.task]
    words += [f"shots_{settings.shots}"] if settings.shots else []
    words += [pathlib.Path(settings.hierarchy).stem] if settings.hierarchy else []
    words += [f"unseen_{settings.unseen_share:g}"] if settings.unseen_share else []
    words += [f"{name}_{value}" for name, value in settings.placement.items()]
    words += ["unit_means"] if settings.renormalize_means else []
    if settings.rank_by == "similarity":
        words.append(f"rerank_{settings.rerank}" if settings.rerank else "similarity")
    if not has_images_of(recipe, settings):
        words.append(re.sub(r"[^\w.-]+", "_", settings.dataset))  # of tfds:NAME
        words += [pathlib.Path(settings.data_dir).resolve().name] if settings.data_dir else []
    if settings.boxes not in (None, recipe.get("boxes")):
        words.append(f"in_{pathlib.Path(settings.boxes).stem}")
    if settings.split != "test":
        words.append(settings.split)
    if settings.level_weights:
        words += ["weights", *(f"{weight:g}" for weight in settings.level_weights)]
    words += [f"levels_{settings.levels}"] if settings.levels else []
    words += [f"crops_{settings.crops}"] if settings.crops > 1 else []
    words += ["mirror"] if settings.mirror else []
    return "_".join(words)


def recipe_of(version):
    """The settings of a version's training; {} if it was exported by another program."""
    try:
        recipe = yaml.safe_load((version / "assets.extra" / "recipe.yaml").read_text())
        return {**recipe, "dataset": recipe["dataset"], "data_dir": recipe["data_dir"]}
    except (OSError, ValueError, TypeError, LookupError, yaml.YAMLError):
        return {}


def has_images_of(recipe, settings):
    """Whether the images to score are those that the recipe names."""
    images = (recipe.get("dataset"), recipe.get("data_dir"))
    return images == (settings.dataset, settings.data_dir)


def load_signatures(settings, version):
    """The functions of the SavedModel, checked."""
    import tensorflow as tf

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
        and image_size[2] in (1, 3)
        and inputs["images"].dtype == tf.float32
        and "embedding" in outputs,
        f"embed_images of {version} must take float32 `images` of a fixed size, grey or of three "
        "colours, and give `embedding`",
        takes={name: (spec.shape, spec.dtype.name) for name, spec in inputs.items()},
        gives=list(outputs),
    )
    if settings.rank_by == "similarity" and not {"score_pairs", "score_matrix"} <= set(signatures):
        raise ValueError(
            f"{version} has no learned similarity to rank by: train with --loss pddm, or rank by "
            f"distance. Its signatures: {', '.join(signatures)}"
        )
    return signatures


def load_dataset(settings):
    """The dataset whose images are scored."""
    return pipelines.load(
        settings.dataset,
        settings.data_dir,
        settings.skip_invalid,
        training=settings.split in ("train", "validation"),
        boxes=settings.boxes,
    )


def load_split(settings, version, recipe, dataset):
    """The images to score. Warns of classes that the model was trained on, but when asked."""
    split = dataset.test
    if settings.split in ("train", "validation"):
        split, share = dataset.train, recipe["validation_share"]
        if share:
            split = pipelines.hold_out_classes(split, share)[settings.split == "validation"]
    elif settings.split == "all":
        split = dataset.both()
    same_images = recipe.get("dataset") == settings.dataset and settings.split != "train"
    of_dataset = trained_classes(version) if same_images else []
    known = sorted(set(of_dataset) & set(split.names))
    if known:
        print(
            f"{PROGRAM}: warning: {len(known):,} of the {split.num_classes:,} scored classes were "
            f"trained on, such as {known[0]}",
            file=sys.stderr,
        )
    check(
        settings.rerank is None or settings.rerank < len(split.labels),
        "`rerank` must not exceed the images that a query can find",
        rerank=settings.rerank,
        images=len(split.labels) - 1,
    )
    return split


def trained_classes(version):
    """Names of the classes that a version was trained on, where it tells them."""
    try:
        return json.loads((version / "assets.extra" / "trained_classes.json").read_text())
    except (OSError, ValueError):
        return []


def known_and_unseen(settings, version, recipe, dataset, split):
    """The images of classes known by their means, those of the others, and the hierarchy of all."""
    import numpy as np

    from tfdml import evaluation

    if settings.unseen_share is None:
        check(
            has_images_of(recipe, settings) and settings.split in ("test", "validation"),
            "`unseen_share` must be given, but for the split test or validation of the images of "
            "the training, whose training classes are known",
            split=settings.split,
            dataset=settings.dataset,
        )
        of_training = dataclasses.replace(settings, split="train")
        known = load_split(of_training, version, recipe, dataset)
        both = pipelines.Dataset(settings.dataset, known, split, image_size=()).both()
        hierarchy = hierarchy_of(settings, both)
    else:
        hierarchy = hierarchy_of(settings, split)
        classes = np.unique(split.labels).tolist()
        unseen = evaluation.every_nth_child(classes, hierarchy, settings.unseen_share)
        check(
            unseen,
            "`unseen_share` must hold out a class of a parent or more",
            unseen_share=settings.unseen_share,
        )
        held_out = np.isin(split.labels, unseen)
        known, split = split.subset(~held_out), split.subset(held_out)
    ids = (np.unique(images.labels) for images in (known, split))
    check(
        evaluation.have_relatives(next(ids), hierarchy, next(ids)).any(),
        "no unseen class has kin among the known ones but by a root: give `unseen_share`, such as "
        "0.2, to hold classes out of each parent",
        known=known.num_classes,
        unseen=split.num_classes,
    )
    return known, split, hierarchy


def hierarchy_of(settings, split):
    """The parents of the classes: those of the file, or the super-classes of the dataset."""
    import numpy as np

    from tfdml.evaluation import hierarchy

    if settings.hierarchy:
        names = dict(zip(np.unique(split.labels).tolist(), split.names, strict=True))
        return hierarchy.of_class_ids(hierarchy.read_hierarchy(settings.hierarchy), names)
    check(
        split.super_labels is not None,
        "`hierarchy` must be given for a dataset without super-classes",
        dataset=settings.dataset,
    )
    return hierarchy.of_super_classes(split.labels, split.super_labels)


def with_neighbours(settings, split):
    """The settings with numbers of neighbours, of which there are only so many in the split."""
    what, most = "means", split.num_classes
    if settings.task == "retrieval":
        what, most = "neighbours", len(split.labels) - 1
    if settings.k is None:
        most = min(most, settings.rerank or most)
        counts = [k for k in NEIGHBOURS[settings.task] if k <= most]
        return dataclasses.replace(settings, k=counts or [1])
    largest = max(settings.k) if isinstance(settings.k, list) else settings.k
    check(largest <= most, f"`k` must not exceed the {what}", k=settings.k, **{what: most})
    return settings


def embed(settings, signature, split, levels, dim):
    """(n, levels * dim) embeddings of the images, in order: those of the levels to score."""
    import numpy as np
    import tensorflow as tf
    from tqdm import tqdm

    from pipelines.images import cause_of
    from pipelines.views import enlarged, views
    from tfdml.evaluation import average_views
    from tfdml.serving.embedding import InPieces, fitting_batch_size

    image_size = tuple(signature.structured_input_signature[1]["images"].shape[1:])
    width = signature.structured_outputs["embedding"].shape[1]
    batch_size = settings.batch_size or fitting_batch_size(image_size, width)
    network = InPieces(lambda images: signature(images=images)["embedding"], batch_size)
    read_size = image_size if settings.crops == 1 else enlarged(image_size)
    several = {"crops": settings.crops, "mirror": settings.mirror}

    def embeddings_of(images):
        shown = views(images, image_size, **several)
        of_views = np.stack([network(view)[:, : levels * dim] for view in shown])
        return of_views[0] if len(of_views) == 1 else average_views(of_views, levels)

    batches = pipelines.evaluation_batches(split, read_size, batch_size)
    try:
        batches = tqdm(batches, desc="Embedding", delay=2, unit="batch")
        return np.concatenate([embeddings_of(images) for images in batches])
    except tf.errors.OpError as error:
        raise OSError(cause_of(error, split)) from error


def levels_to_score(settings, recipe, signature):
    """How many embeddings of each image, of those side by side, are scored, and their width."""
    width, weights = signature.structured_outputs["embedding"].shape[1], settings.level_weights
    levels = width // recipe["embedding_dim"] if "embedding_dim" in recipe else len(weights or [1])
    dim, most = width // levels, levels
    levels = settings.levels or levels
    check(
        levels <= most, "`levels` must not exceed those of the model", levels=levels, of_model=most
    )
    check(
        weights is None or (len(weights) == levels > 1 and width % levels == 0),
        "`level_weights` must have one number for each level of a model with several",
        level_weights=weights,
        levels=levels,
    )
    return levels, dim


def joined(settings, embeddings):
    """The embeddings of all levels, weighed if that is asked for."""
    from tfdml.evaluation import weigh_levels

    weights = settings.level_weights
    return embeddings if weights is None else weigh_levels(embeddings, weights)


def score_levels(settings, embeddings, levels, labels):
    """{"levels": {level: {name: value}}}, each of several ranked alone, by distance."""
    from tfdml.evaluation import split_levels

    if levels == 1:
        return {}
    alone = dataclasses.replace(settings, rank_by="distance", rerank=None, nmi=False)
    scores = {}
    for number, of_level in enumerate(split_levels(embeddings, levels), start=1):
        results = score(alone, None, of_level, labels)
        scores[f"level {number}"] = {**results["scores"], **results.get("distances", {})}
    return {"levels": scores}


def score(settings, signatures, embeddings, labels):
    """{"scores": {name: value}}, with more beside it.

    "distances", where they rank, if there are pairs of both kinds; with --rerank "reranking", which
    tells what it loses.
    """
    from tfdml import evaluation

    data, results = (embeddings, labels), {}
    if settings.rerank:
        similarity = similarity_of(signatures["score_pairs"], len(labels) * settings.rerank)
        recalls = evaluation.recall_after_reranking(
            *data, k=settings.k, similarity=similarity, candidates=settings.rerank
        )
        results["reranking"] = compare_rankings(settings, signatures["score_pairs"], *data)
    elif settings.rank_by == "similarity":
        pairs = evaluation.scores_to_rank(len(labels))
        similarity = similarity_of(signatures["score_matrix"], pairs)
        recalls = evaluation.recall_at_k(*data, k=settings.k, similarity=similarity)
    else:
        recalls = evaluation.recall_at_k(*data, k=settings.k)
        if has_pairs_of_both_kinds(labels):
            results["distances"] = evaluation.distance_statistics(*data)
    scores = named(recalls)
    if settings.nmi:
        print("Clustering by k-means", flush=True)
        scores["nmi"] = evaluation.nmi(*data, seed=settings.seed, restarts=settings.restarts)
    return {"scores": scores, **results}


def score_few_shot(settings, embeddings, labels):
    """{"scores": {name: value}, "deviations": {name: value}} over draws of images for the means."""
    from tfdml.evaluation.transfer_scores import few_shot_scores

    return few_shot_scores(
        embeddings,
        labels,
        shots=settings.shots,
        k=settings.k,
        draws=settings.draws,
        seed=settings.seed,
        renormalize_means=settings.renormalize_means,
    )


def score_zero_shot(settings, of_known, embeddings, known_labels, labels, hierarchy):
    """{"scores": {name: value}}, with every way to count classes of one mean beside it."""
    from tfdml.evaluation.transfer_scores import zero_shot_scores

    return zero_shot_scores(
        *(of_known, known_labels, hierarchy, embeddings, labels),
        k=settings.k,
        renormalize_means=settings.renormalize_means,
        **settings.placement,
    )


def has_pairs_of_both_kinds(labels):
    return 1 < len(set(labels.tolist())) < len(labels)


def compare_rankings(settings, signature, embeddings, labels):
    """Recalls of a sample of queries by the learned similarity to all images, and reranked."""
    from tfdml import evaluation

    queries = min(COMPARED_QUERIES, len(labels))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of queries without a mate: said before
        exact, reranked = evaluation.exact_and_reranked_recall(
            embeddings,
            labels,
            k=settings.k,
            similarity=similarity_of(signature, queries * (len(labels) - 1 + settings.rerank)),
            candidates=settings.rerank,
            queries=queries,
            seed=settings.seed,
        )
    lost = {k: exact[k] - reranked[k] for k in exact}
    recalls = {"exact": exact, "reranked": reranked, "lost": lost}
    return {"queries": queries, **{name: named(recalls[name]) for name in recalls}}


def named(recalls):
    return {f"recall@{k}": recall for k, recall in recalls.items()}


def similarity_of(signature, pairs=None):
    """The learned similarity of rows of arrays; with a bar if told how many pairs there will be."""
    import tensorflow as tf
    from tqdm import tqdm

    bar = tqdm(
        desc="Scoring", total=pairs, delay=2, unit="pair", unit_scale=True, disable=pairs is None
    )

    def similarity(a, b):
        rows = {"embeddings_a": tf.constant(a), "embeddings_b": tf.constant(b)}
        scores = signature(**rows)["similarity"].numpy()
        bar.update(scores.size)
        if bar.n == pairs:
            bar.close()
        return scores

    return similarity


def ranking(settings):
    """How images were ranked or classified, in words; nothing for retrieval by distance."""
    if settings.task == "ncm":
        shots = "half" if settings.shots is None else f"{settings.shots:,}"
        return f",\nthe nearest mean of {shots} of the images of each class, {settings.draws} draws"
    if settings.task == "zero_shot":
        return ",\nthe nearest mean of the kin of each class"
    if settings.rerank:
        return f",\nthe {settings.rerank:,} nearest of each ranked by the learned similarity"
    return ",\nranked by the learned similarity" if settings.rank_by == "similarity" else ""


def table(results):
    """The scores, the distances behind them, and what reranking loses, for the screen."""
    from tfdml.evaluation.report import scores_table
    from tfdml.evaluation.transfer_scores import transfer_lines

    lines = [f"{name:>12}  {value:.4f}" for name, value in results["scores"].items()]
    if "levels" in results:
        lines.append("\nEach level alone, by distance:")
        lines.append(
            scores_table(
                {
                    level: {
                        name: value for name, value in scores.items() if name in results["scores"]
                    }
                    for level, scores in results["levels"].items()
                }
            )
        )
    lines += transfer_lines(results)
    if "distances" in results:
        lines.append("\nDistances of all pairs of embeddings, and their LDA score:")
        lines += [f"{name:>17}  {value:.4f}" for name, value in results["distances"].items()]
    if "reranking" in results:
        queries = results["reranking"]["queries"]
        lines.append(f"\nAgainst a ranking of all images, on {queries:,} queries:")
        lines.append(scores_table(results["reranking"]))
    return "\n".join(lines)


def draw(settings, recipe, signatures, embeddings, split):
    """Draws the pictures of the report beside the scores; returns their paths."""
    from tfdml.evaluation import report

    pairs, matrix = (
        similarity_of(signatures[name]) if name in signatures else None
        for name in ("score_pairs", "score_matrix")
    )
    by_distance = dataclasses.replace(settings, rank_by="distance", rerank=None)
    paths = [
        pathlib.Path(settings.out).with_name(f"{file_name(stem, of, recipe)}.png")
        for stem, of in (("score_distributions", by_distance), ("retrievals", settings))
    ]
    data, seed = (embeddings, split.labels), settings.seed
    if settings.rank_by == "distance":
        matrix = None
    if settings.level_weights or settings.levels or settings.crops > 1 or settings.mirror:
        pairs = None  # it learned embeddings as they are
    if has_pairs_of_both_kinds(split.labels):
        report.plot_score_distributions(*data, paths[0], similarity=pairs, seed=seed)
    else:
        print("No distributions are drawn: there are no pairs of both kinds.")
        del paths[0]
    report.plot_retrievals(pictures_of(split), *data, paths[-1], similarity=matrix, seed=seed)
    return paths


def pictures_of(split):
    """What reads the image of a row, at its own size."""
    import tensorflow as tf

    from pipelines.images import crop, decode

    if split.holds_paths:
        read = lambda row: decode(tf.io.read_file(split.images[row]), channels=3)  # noqa: E731
    else:
        read = split.images.__getitem__
    return read if split.boxes is None else lambda row: crop(read(row), split.boxes[row])


if __name__ == "__main__":
    main()
