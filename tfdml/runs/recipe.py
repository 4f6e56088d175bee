"""The settings of a run: what `train.py` takes as flags and as YAML keys."""

import dataclasses
import re
from typing import Any, ClassVar, Literal

from tfdml.command_line import (
    Count,
    NotNegative,
    OpenShare,
    Positive,
    PositiveInt,
    Seed,
    Settings,
    Share,
)
from tfdml.models.backbones import is_pretrained
from tfdml.serving.metadata import PATHS
from tfdml.serving.options import ExportOptions

USUAL_CLASSES = 32  # of a batch
CLASS_SAMPLERS = ("balanced", "mixed", "groups")  # whose batches have P classes
FEW_CLASSES = 10  # of fewer, a rate of 1e-3 fits the training classes alone
FEATURES = "features:"  # prefix of the path of a file of them, as a dataset
OF_IMAGES = (
    *("data_dir", "skip_invalid", "boxes", "exclude", "relabel", "image_size", "warp_size"),
    *("keep_aspect", "trim_white", "mean_image", "augmentation", "backbone", "weights"),
    *("init_from", "views", "levels", "mirror", "pooling", "freeze_batch_norm", "cache"),
    "export_options",
)
OF_FROZEN = (
    *("dataset", "tune", "lora_rank", "embedding_dim", "steps", "validation_share", "seed", "run"),
    *OF_IMAGES,
)


@dataclasses.dataclass(frozen=True)
class Recipe(Settings):
    """Settings of one training run. Defaults train the `glyphs` in a few minutes on 2 cores.

    Settings whose default depends on others are None until `completed` fills them in.

    Args:
        loss: Name of the objective: {losses}.
        loss_options: Options of the loss, such as `--loss_options.margin 0.5`; its docstring
            lists them.
        dataset: Name of the images: {datasets}; or `features:FILE` for a head on features that
            other tools computed: a file `.npz` or `.parquet` as `evaluate.py --embeddings` reads.
        data_dir: Folder of the dataset, unless it is built in. For `csv`, a folder or the file; for
            `tfds:NAME`, the data folder of tensorflow-datasets.
        skip_invalid: Skip missing and unreadable images, sub-folders without images and training
            classes with a single image, and accept other counts of images than published, each
            with a warning. Reads every image once.
        boxes: `annotated`, for the boxes of the dataset, or a CSV file with the lines
            `path,x1,y1,x2,y2`, paths relative to `data_dir`. Images are cropped to their boxes in
            training and in scoring.
        exclude: CSV file of images to leave out, with a column `path`, relative to `data_dir`; of
            one that `tfdml-evaluate audit` writes, the lines whose `suggestion` is `exclude`.
        relabel: CSV file of new labels, with the columns `path` and `label`; of such a one, the
            lines whose `suggestion` is `relabel CLASS`. It may be the same file.
        image_size: Side of the square images in pixels; the preset's or the dataset's own if not
            given.
        warp_size: Side in pixels to which images are first resized, regardless of their aspect
            ratio. Training then takes a random crop of `image_size`, scoring and the served model
            the central one. If not given, images are resized to `image_size`. A `crop` of the
            augmentation below 1 replaces the random crop.
        keep_aspect: Keep the aspect ratio: resize the shorter side to `warp_size`, or to
            `image_size` if there is none.
        trim_white: Cut off a white border first, resize the longer side to `warp_size` and pad the
            image with white to a square, as for Stanford Online Products.
        mean_image: `.npy` file of the mean image that is subtracted before the crop, of side
            `warp_size`, or `image_size` without one. Its mean colour is added back, because
            backbones subtract one themselves.
        augmentation: Changes of the dataset's random crops, flips, warps and colours, such as
            `--augmentation.rotation 10`; the docstring of `pipelines.Augmentation` lists them.
        backbone: Network up to the features: {backbones}; or `hub:PRESET`, a preset of KerasHub by
            its name, `hf://` or `kaggle://` handle, or folder; or `module:function` of your own,
            which returns a `keras.Model` for (height, width, channels) of images in [0, 255].
        weights: Initial weights of the backbone: `imagenet` or a weights file; random if not given.
        init_from: Run or `.keras` file whose embedder is trained further (fine-tuning), with its
            backbone, `embedding_dim` and `levels`; for `small_cnn` and several levels `image_size`.
            For `tune` lora, `adapters.npz` of a run with the same backbone and `lora_rank`.
        tune: `full` trains the whole network. `head` embeds every image once by the backbone, keeps
            these features beside the runs and trains the layers behind them alone, in seconds.
            `lora` trains these and adapters of the backbone, low-rank changes of the queries and
            values of its attention, or of all dense layers of your own network. `frozen` trains
            nothing: it scores and exports the features as they are.
        lora_rank: Rank of the adapters.
        layer_decay: Factor, for `tune` full, by which the learning rate falls from each block of
            the backbone to the one before it, such as 0.75; the same rate for all if not given.
        recompute: Compute the blocks of a transformer again for their gradients, for `tune` full
            and lora, instead of keeping all that is in them: less memory, more time. In float32.
        views: Random augmented views of each training image whose features `head` trains on too.
        embedding_dim: Dimensions of the embedding of each level; null for the features themselves.
        levels: Number of embeddings of each image, which are concatenated: 1, or with early exits
            of the backbone 2 or 3. If not given, that of the loss: 3 for hdc, 1 for others.
        dropout: Share of the features dropped in training, 0 to below 1, or one for each level,
            such as `[0.7, 0.7, 0.4]`.
        mirror: Embed an image and its mirror image and average their features, for objects seen
            from either side: better retrieval at twice the time. Training uses one of the two.
        pooling: `average`, or `average+max` for the sum of the averages and the maxima of the last
            maps, as in the code of Proxy-Anchor, for backbones that end in global average pooling.
            Of presets and functions also `gem`, and of tokens `class` and `class+average`. If not
            given, the class token of those that have one, else the average.
        freeze_batch_norm: Do not train the statistics, scales and offsets of batch normalisation.
            If not given: true with pretrained `weights`; with `init_from`, as in the run that it
            names; else false.
        classes_per_batch: Distinct classes in a batch (P); 32 if not given, or all training
            classes where there are fewer and the sampler is not `whole_classes`.
        images_per_class: Images of each of these classes (K); a batch has P × K images. Classes of
            fewer images repeat them. The papers of N-pair and NT-Xent use K = 2.
        micro_batch: Number of images that a step computes at once, for batches that exceed the
            memory; must divide P × K. The loss is that of the whole batch, but batch normalisation
            that is trained uses the statistics of each part. A step takes up to a third longer.
        sampler: `balanced`: K images of each of P classes; `mixed`: K to 2 K images of each of
            fewer classes; `groups`: all images of P / 2 classes of each of 2 super-classes, such as
            alphabets, at most P × K; `whole_classes`: all images of random classes, P × K, which
            must exceed the largest class by 2 or more; `pairs`: P × K / 2 pairs, about half of one
            class; `shuffled`: P × K images in a random order, whatever their classes, for losses
            over proxies.
        sampler_options: Of all samplers `--sampler_options.skip_duplicates true`: two images of a
            class that are the same picture, by its pixels, or by a CSV file in place of `true` as
            of `exclude`, are never in one batch. Options of `groups` and `pairs`, such as
            `--sampler_options.hard_neighbours true`; the docstrings of `pipelines.group_batches`
            and `pipelines.pair_batches` list them. Hard neighbours are refreshed every
            `checkpoint_every` steps.
        cache: `auto` keeps decoded training images in a quarter of the memory at most, so that each
            is decoded once; `off` keeps none. The batches are the same.
        precision: `float32`, or `mixed_bfloat16` or `mixed_float16`: layers of the backbone compute
            in 16 bits in training; weights, embedding, loss, scores and export stay float32. Pays
            on GPUs, and as `mixed_bfloat16` on CPUs with AVX512_BF16. With `mixed_float16`, steps
            that overflow are skipped.
        optimizer: `adam` or `sgd` (momentum 0.9).
        learning_rate: Initial learning rate. If not given, 1e-4 for a network with trained weights
            (`weights` or `init_from`), a head, or fewer than 10 training classes, else 1e-3.
        warmup_steps: Steps in which the learning rate rises from 0 to `learning_rate`.
        schedule: `cosine` (falls to 0 over the rest of the run), `constant`, or `step` (multiplied
            by `decay_factor` every `decay_every` steps).
        decay_factor: For the schedule `step`, above 0 and below 1; 0.1 if not given.
        decay_every: Steps between the changes of the schedule `step`.
        weight_decay: Share of each kernel that is added to its gradient, as in Caffe. Proxies are
            not decayed.
        clip_value: Largest absolute value in a gradient; larger ones are clipped to it.
        clip_norm: Largest norm of the gradients of all variables together; larger ones are scaled
            down to it.
        head_multiplier: Factor of the learning rate of new layers, which are the embedding layers,
            early exits and the variables of the loss; if not given, 10 with pretrained `weights`,
            else 1. Targets of density use `loss_options.alpha_multiplier` instead, and proxies
            `loss_options.proxy_multiplier`.
        head_steps: Number of first steps that train new layers only. If not given, a tenth of
            `steps`, at most 100, with pretrained `weights`, else 0.
        exit_multiplier: That of the layers of early exits before their embeddings, which some
            weights files contain; `head_multiplier` if not given.
        bias_multiplier: Further factor of the learning rate of all biases; 2 in Caffe's models.
        steps: Number of updates; 0 scores and exports the network as it is initialised.
        checkpoint_every: Updates between checkpoints, and between the points of the logs; as many
            a crash loses at most, of a head those of a minute. The last interval may be shorter.
        validation_share: Share of the training classes that is held out, the last in order. If
            above 0, they are scored in place of the test classes, to choose settings; use 0 for the
            final run.
        seed: Seed of the weights, the batches and their augmentation.
        export_options: Options of the exported model, such as `--export_options.on_bad_image nan`
            or `--export_options.licence MIT`; the docstring of `tfdml.serving.ExportOptions` lists
            them.
        run: Name of the run's folders in `runs/` and `saved_models/`; made from dataset and loss
            if not given.
    """

    paths: ClassVar = PATHS
    options_of: ClassVar = {"export_options": ExportOptions}

    loss: str = "lifted"
    loss_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    dataset: str = "glyphs"
    data_dir: str | None = None
    skip_invalid: bool = False
    boxes: str | None = None
    exclude: str | None = None
    relabel: str | None = None
    image_size: PositiveInt | None = None
    warp_size: PositiveInt | None = None
    keep_aspect: bool = False
    trim_white: bool = False
    mean_image: str | None = None
    augmentation: dict[str, Any] = dataclasses.field(default_factory=dict)
    backbone: str = "small_cnn"
    weights: str | None = None
    init_from: str | None = None
    tune: Literal["full", "lora", "head", "frozen"] = "full"
    lora_rank: PositiveInt = 8
    layer_decay: OpenShare | None = None
    recompute: bool = False
    views: Count = 0
    embedding_dim: PositiveInt | None = 128
    levels: Literal[1, 2, 3] | None = None
    dropout: Share | list[Share] = 0.0
    mirror: bool = False
    pooling: str | None = None
    freeze_batch_norm: bool | None = None
    classes_per_batch: PositiveInt | None = None
    images_per_class: PositiveInt = 4
    micro_batch: PositiveInt | None = None
    sampler: Literal["balanced", "mixed", "groups", "whole_classes", "pairs", "shuffled"] = (
        "balanced"
    )
    sampler_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    cache: Literal["auto", "off"] = "auto"
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: Positive | None = None
    warmup_steps: Count = 0
    schedule: Literal["cosine", "constant", "step"] = "cosine"
    decay_factor: OpenShare | None = None
    decay_every: PositiveInt | None = None
    weight_decay: NotNegative = 0.0
    clip_value: Positive | None = None
    clip_norm: Positive | None = None
    head_multiplier: Positive | None = None
    head_steps: Count | None = None
    exit_multiplier: Positive | None = None
    bias_multiplier: Positive = 1.0
    steps: Count = 1500
    checkpoint_every: PositiveInt = 100
    validation_share: Share = 0.0
    seed: Seed = 0
    export_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    run: str | None = None

    def __post_init__(self):
        has_features = self.dataset.startswith(FEATURES)
        if has_features and self.tune == "full":
            vars(self)["tune"] = "head"
        tune, stepwise = self.tune, self.schedule == "step"
        unseen = tune == "head" and not self.views
        fields = [field.name for field in dataclasses.fields(self)]
        trained = [name for name in fields if name not in OF_FROZEN]
        frozen = "`{name}` must be left out with `tune` frozen, which trains nothing"
        images = "`{name}` must be left out with a `dataset` of features, not of images"
        self.check_rules(
            (has_features, OF_IMAGES, images),
            (tune == "frozen", trained, frozen),
            (tune != "lora", ["lora_rank"], "`{name}` is for `tune` lora"),
            (tune != "full", ["layer_decay"], "`{name}` is for `tune` full"),
            (tune == "head", ["recompute"], "`{name}` is for `tune` full and lora"),
            (self.recompute, ["precision"], "`recompute` is in float32: leave out `{name}`"),
            (tune != "head", ["views"], "`{name}` are for `tune` head"),
            (unseen, ["augmentation"], "`{name}` needs `views` where `tune` is head"),
            (not stepwise, ["decay_factor", "decay_every"], "`{name}` is of the `schedule` step"),
            (stepwise, ["warmup_steps"], "`{name}` are for the schedules `cosine` and `constant`"),
        )
        self.check(self.decay_every or not stepwise, "the `schedule` step needs `decay_every`")
        fits = tune == "head" or not has_features
        self.check(fits, "`tune` must be head with a `dataset` of features")
        if tune == "frozen":
            for name, value in {"embedding_dim": None, "steps": 0}.items():
                unset = getattr(self, name) in (value, getattr(Recipe, name))
                self.check(unset, frozen.format(name=name))
                vars(self)[name] = value
        adaptable = "`tune` lora is for presets of KerasHub and functions, `hub:PRESET` and "
        adaptable += "`module:function`, with attention or dense layers: use head or full"
        self.check(tune != "lora" or ":" in self.backbone, adaptable, "backbone")
        learns = tune != "head" or self.embedding_dim is not None
        self.check(learns, "`embedding_dim` must be a number for `tune` head, which trains it")
        fits = tune == "lora" or not (self.init_from or "").endswith(".npz")
        whole = "`init_from` must be a run or a .keras file: adapters, .npz, are for `tune` lora"
        self.check(fits, whole)
        one_start = not (self.weights and self.init_from)
        self.check(one_start, "`weights` and `init_from` are two starts of the network: give one")
        warms_up = self.warmup_steps < self.steps or self.warmup_steps == 0
        self.check(warms_up, "`warmup_steps` must be < `steps`")
        least = 1 if self.sampler == "shuffled" else 2
        for name, reason in (
            ("classes_per_batch", "one class has no negative"),
            ("images_per_class", "one image has no positive"),
        ):
            enough = (getattr(self, name) or least) >= least
            self.check(enough, f"`{name}` must be >= 2: {reason}")
        if self.micro_batch and self.classes_per_batch:
            divides = self.batch_size % self.micro_batch == 0
            expectation = "`micro_batch` must divide `classes_per_batch` × `images_per_class`"
            self.check(divides, expectation)
        name = "run" if self.run is None else self.run
        is_folder = name.isprintable() and re.fullmatch(r"[^.~/\\][^/\\]*", name)
        expectation = "`run` must name a folder, without . or ~ first, of 100 bytes at most"
        self.check(is_folder and len(name.encode()) <= 100, expectation)

    def completed(self, num_classes):
        """The recipe with a number for every setting that was not given, and {name: reason}."""
        if self.tune == "frozen":
            return self, {}
        start = "for a network that starts at random"
        pretrained = self.is_pretrained and not self.init_from
        if pretrained:
            start = "on top of pretrained weights"
        elif self.init_from:
            start = f"for a network that starts from {self.init_from}"
        rate = (1e-4 if pretrained or self.init_from else 1e-3, start)
        if self.tune == "head":
            pretrained, start = False, "for a head on features"
            rate = (1e-4, start)
        if num_classes < FEW_CLASSES:
            rate = (1e-4, f"as a network overfits {num_classes} classes")
        classes, reason = USUAL_CLASSES, "the default"
        if num_classes < USUAL_CLASSES and self.sampler != "whole_classes":
            classes, reason = num_classes, "all training classes"
        if left := classes % self.super_classes:
            classes, reason = classes - left, f"{self.super_classes} super-classes must divide it"
        defaults = {
            "learning_rate": rate,
            "head_multiplier": (10.0 if pretrained else 1.0, start),
            "classes_per_batch": (classes, reason),
        }
        if self.steps:  # else a run that goes on decides
            head_steps = min(100, self.steps // 10) if pretrained else 0
            defaults["head_steps"] = (head_steps, start)
        filled = {name: entry for name, entry in defaults.items() if getattr(self, name) is None}
        values = {name: value for name, (value, _) in filled.items()}
        reasons = {name: f"{value:g}, {reason}" for name, (value, reason) in filled.items()}
        return dataclasses.replace(self, **values), reasons

    @property
    def is_pretrained(self):
        """Whether the backbone starts from trained weights."""
        return is_pretrained(self.backbone, self.weights)

    @property
    def has_frozen(self):
        """Whether the features of the backbone before the training are scored beside."""
        return self.is_pretrained or self.tune != "full"

    @property
    def batch_size(self):
        """Images in a batch, of a recipe with `classes_per_batch`."""
        return self.classes_per_batch * self.images_per_class  # pyright: ignore[reportOptionalOperand]

    @property
    def super_classes(self):
        """Number of super-classes in a batch of the sampler `groups`; 1 for the others."""
        if self.sampler != "groups":
            return 1
        return self.sampler_options.get("super_classes", 2)
