"""A run that is ready to train, of which all is checked once, in the order of cost."""

import contextlib
import dataclasses
import json
import math
import os
import shlex
import sys
from typing import Any

import pipelines
import tfdml
from tfdml import runs
from tfdml.checks import check, check_bool, check_integer, check_keras, check_options
from tfdml.command_line import as_yaml
from tfdml.files import check_writable, identity, read_text, write_text
from tfdml.losses.index import check_loss
from tfdml.models.backbones import check_weights
from tfdml.quiet import import_tensorflow
from tfdml.runs import folders
from tfdml.runs.devices import Devices
from tfdml.runs.folders import CHECKPOINT, EARLIER, RUNS, SAVED_MODELS, TRAINED, classes_text
from tfdml.runs.recipe import Recipe
from tfdml.runs.run_images import Images, load_images, preprocessing_of, warn_of_trained
from tfdml.serving.options import export_options


def check_files(recipe, starts=True):
    """Checks what needs no images; of a network that `starts`, not its checkpoint, the weights."""
    check_loss(recipe.loss, recipe.loss_options)
    if recipe.init_from and starts:
        folders.source_of(recipe.init_from)  # raises if there is none
    if recipe.dataset == "folder" and recipe.data_dir is not None:
        here = identity(recipe.data_dir) == identity(".")
        expectation = (
            f"`data_dir` must not be the folder of the run itself: {RUNS} and {SAVED_MODELS}, "
            "which it makes here, would be classes. Run in another folder"
        )
        check(not here, expectation, data_dir=recipe.data_dir)
    if recipe.data_dir is None or os.path.exists(recipe.data_dir):
        # If not, loading says first what the images are.
        if starts:
            check_weights(recipe.backbone, recipe.weights)
        preprocessing_of(vars(recipe), recipe.mean_image)
    pipelines.Augmentation().changed(**recipe.augmentation)
    available = {"skip_duplicates"}
    if recipe.sampler in ("groups", "pairs"):
        import_tensorflow()  # of which samplers are made
        kind = pipelines.Groups if recipe.sampler == "groups" else pipelines.Pairs
        fields = {field.name for field in dataclasses.fields(kind)}
        available |= fields - {"classes_per_batch", "batch_size"}
    check_options(f"sampler {recipe.sampler!r}", recipe.sampler_options, available)
    check_integer(1, super_classes=recipe.super_classes)
    check_bool(hard_neighbours=recipe.sampler_options.get("hard_neighbours", False))
    twins = recipe.sampler_options.get("skip_duplicates", False)
    known = isinstance(twins, bool) or os.path.isfile(os.path.expanduser(str(twins)))
    expectation = "`skip_duplicates` must be true, false or an existing CSV file"
    check(known, expectation, skip_duplicates=twins)
    precision = export_options(recipe.export_options).precision
    expectation = (
        "a run is exported as float32; `evaluate.py --export` rounds it and measures the loss"
    )
    check(precision == "float32", expectation, precision=precision)


def check_model(recipe):
    """Checks options of the loss and the network. Imports TensorFlow."""
    import_tensorflow()
    runs.check_network(recipe)


@dataclasses.dataclass
class Run(contextlib.AbstractContextManager):
    """What a run trains, and on what; ends what it holds where its `with` block ends."""

    recipe: Recipe
    devices: Devices
    images: Images
    model: Any  # compiled `EmbeddingModel`
    trained: Any  # the part of it that is trained
    seen: Images  # what this part takes
    batches: Any  # `tf.data.Dataset`, from the step of the model on
    callbacks: list  # that the batches need
    earlier: list  # names of the classes of the run that it starts from
    held: contextlib.ExitStack = dataclasses.field(default_factory=contextlib.ExitStack)

    def __exit__(self, *error):
        self.held.close()

    @property
    def folder(self):
        return RUNS / (self.recipe.run or "")

    @property
    def step(self):
        """Updates of the model."""
        return int(self.model.optimizer.iterations)

    def kept_scores(self):
        """Those in scores.json; none before the first."""
        path = self.folder / "scores.json"
        return json.loads(read_text(path)) if path.exists() else {}

    def keep_scores(self, scores):
        write_text(self.folder / "scores.json", json.dumps(scores, indent=2) + "\n")

    def keep_model(self):
        """Saves the model where no step of the training did."""
        path = self.folder / CHECKPOINT
        if not path.exists():
            self.model.save(path)

    def train(self, callbacks=()):
        """Trains to the last step, on all devices; every worker must call it."""
        recipe, interval = self.recipe, self.recipe.checkpoint_every
        if self.step < recipe.steps:
            # Before what saves or scores a model.
            stops = [tfdml.callbacks.StopOnNaN(), tfdml.callbacks.StopAt(recipe.steps)]
            embedder = self.model.embedder
            blocks = tfdml.models.recomputable_blocks(embedder) if recipe.recompute else []
            with tfdml.models.recomputing(blocks):
                self.devices.fit(
                    self.trained,
                    self.batches,
                    steps_per_epoch=interval,
                    initial_epoch=math.ceil(self.step / interval),
                    epochs=sys.maxsize,  # `StopAt` ends it, as float16 may skip an update
                    callbacks=[*stops, *callbacks, *self.callbacks],
                )

    @contextlib.contextmanager
    def resumable(self):
        """Within it, what stops this run or another worker says how to go on."""
        go_on = f"Go on with: tfdml-train --run {shlex.quote(self.folder.name)} --resume"
        go_on += f" --devices {self.devices.text}" if self.devices.text else ""
        splits = self.images.dataset.splits.values()
        with runs.resumable(go_on, splits), self.devices.stopping_together(go_on):
            yield


def prepare(recipe, devices=None, *, resume=False, images=None, kept=False):
    """The `Run` of a recipe, on one device if `devices` is None, of `images` if they are loaded.

    With `resume` it goes on from its last checkpoint; if it is `kept` it has a folder, which this
    process makes or locks. Errors state in a sentence why it cannot train.
    """
    devices, folder = devices or Devices(), RUNS / (recipe.run or "")
    writes = kept and devices.is_chief
    with contextlib.ExitStack() as held:
        check_keras()
        devices.check_backend(recipe.micro_batch)
        if writes:
            check_writable(folder, SAVED_MODELS / recipe.run)
            if resume:
                held.enter_context(folders.only_writer(folder))
        if resume:
            folders.check_incomplete(recipe)
        check_files(recipe, starts=not (resume and (folder / CHECKPOINT).is_file()))
        held.enter_context(devices.speaking())
        devices.start()
        named = recipe.dataset, recipe.data_dir, recipe.skip_invalid
        if images is None and pipelines.is_listed(*named):
            images = load_images(recipe)  # before seconds of importing TensorFlow
        check_model(recipe)
        images = images or load_images(recipe)  # which takes minutes
        before = folders.read_classes(folder, EARLIER) if resume else folders.classes_before(recipe)
        warn_of_trained("train", before, images.test)
        if resume and writes:
            folders.check_same_images(folder, images.train.names, images.counts)
        recipe, reasons = recipe.completed(images.train.num_classes)
        if ":" in recipe.backbone:  # a run that goes on needs no preset for it
            recipe = dataclasses.replace(recipe, image_size=images.dataset.image_size[0])
        for name, reason in reasons.items():
            print(f"--{name} {reason}")
        devices.check(recipe)
        run = _built(recipe, devices, images, before, folder if resume else None)
        if kept:
            _keep(run, folder, resume, held)
        run.held = held.pop_all()
        return run


def _built(recipe, devices, images, before, folder):
    """The `Run` of a complete recipe, which goes on from the checkpoint of a folder if there is."""
    model = folder and runs.load_checkpoint(recipe, folder)
    step = 0 if model is None else int(model.optimizer.iterations)
    # Before the model: a sampler may reject the images, and some losses embed all of them.
    data, batches, callbacks, pictures = (images.train, images.dataset), None, [], None
    if recipe.tune != "frozen":
        pictures = runs.distinct_pictures(recipe, images.train)
        batches, callbacks = runs.training_batches(recipe, step, *data, devices.part, pictures)
    if model is None:
        model = runs.build_model(recipe, *data)
        if recipe.tune != "frozen":
            recipe = runs.with_loss_options(recipe)
    trained, seen = runs.trained_part(recipe, model, images)
    if seen.train is not images.train:
        data = seen.train, images.dataset
        batches, callbacks = runs.training_batches(recipe, step, *data, pictures=pictures)
    return Run(recipe, devices, images, model, trained, seen, batches, callbacks, before)


def _keep(run, folder, resume, held):
    """Makes the folder of a run, or writes how it goes on."""
    settings = dataclasses.asdict(run.recipe)
    files = {"config.yaml": as_yaml(settings), TRAINED: classes_text(run.images.train.names)}
    if run.earlier:
        files[EARLIER] = classes_text(run.earlier)
    run.devices.check_agree(repr({**settings, "run": None}), files[TRAINED], str(run.step))
    if not run.devices.is_chief:
        return
    if resume:
        write_text(folder / "config.yaml", files["config.yaml"])
    else:
        folders.make_folders(folder, files)
        held.enter_context(folders.only_writer(folder))
