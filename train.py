"""Trains an embedder on images, scores it on unseen classes and exports it for TF Serving.

    python train.py --loss lifted
    python train.py --loss triplet --dataset folder --data_dir photos \
        --backbone mobilenet_v2 --weights imagenet

Writes runs/NAME/ (config.yaml, trained_classes.json, checkpoint.keras, logs/, scores.json,
training.png) and saved_models/NAME/1/, and prints Recall@K of the classes that were not trained on,
before and after.
"""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time

import yaml

import pipelines
from tfdml.checks import check, check_fits, unknown_name, unknown_option
from tfdml.command_line import (
    Parser,
    as_file_name,
    check_writable,
    fail,
    import_tensorflow,
    one_sentence,
    write_text,
)
from tfdml.losses import LOSSES
from tfdml.models import BACKBONES
from tfdml.recipes import Recipe

PROGRAM = "train.py"
RUNS = pathlib.Path("runs")
SAVED_MODELS = pathlib.Path("saved_models")
NEIGHBOURS = (1, 2, 4, 8)
PAIRS = 2000  # of each kind, to judge a learned similarity by
COLLAPSED = 0.6  # area under its ROC curve, where chance is 0.5
SAMPLER_OPTIONS = {
    "groups": ("super_classes", "images_per_class", "evenly"),  # of `pipelines.group_batches`
    "pairs": ("hard_neighbours", "reshuffle"),  # of `pipelines.pair_batches`
}


def main(arguments=None):
    recipe, resume = parse(sys.argv[1:] if arguments is None else arguments)
    folder = RUNS / recipe.run
    with one_sentence(PROGRAM, ValueError, TypeError, OSError), contextlib.ExitStack() as run:
        check_writable(folder, SAVED_MODELS / recipe.run)
        if resume:
            run.enter_context(only_writer(folder))
        check_files(recipe)
        if recipe.skip_invalid or not pipelines.is_listed(recipe.dataset):
            check_model(recipe)  # before minutes of reading images
        train_split, scored, dataset = load_images(recipe)
        recipe = with_defaults(recipe, train_split)
        check_model(recipe)
        model = load_checkpoint(recipe, folder) if resume else None
        if model is not None:  # a run of an earlier version has none of these steps
            recipe = dataclasses.replace(recipe, head_steps=model.optimizer.head_steps)
        step = 0 if model is None else int(model.optimizer.iterations)
        # Before the model, for which density embeds all images: a sampler may refuse them.
        batches, callbacks = training_batches(recipe, step, train_split, dataset)
        if model is None:
            model = build_model(recipe, train_split, dataset)
        files = {
            "config.yaml": yaml.safe_dump(dataclasses.asdict(recipe), sort_keys=False),
            "trained_classes.json": json.dumps(train_split.names, ensure_ascii=False) + "\n",
        }
        if resume:
            check_same_classes(folder, files)
            write_text(folder / "config.yaml", files["config.yaml"])
        else:
            make_folders(folder, files)
            run.enter_context(only_writer(folder))
        with one_sentence(PROGRAM, FloatingPointError, OSError), resumable(recipe.run, dataset):
            scores = fit(recipe, folder, model, batches, callbacks, scored, dataset)
            report(recipe, folder, scores, train_split.num_classes)
            version = export(recipe, model, dataset, files, scores)
    print(f"Run: {folder}   Model: {version}")


def parse(arguments):
    """The recipe and whether it resumes. Imports neither TensorFlow nor Keras."""
    parser = Parser(
        Recipe,
        names={
            "losses": ", ".join(sorted(LOSSES)),
            "datasets": ", ".join(sorted(pipelines.names())),
            "backbones": ", ".join(sorted(BACKBONES)),
        },
        prog=PROGRAM,
        description=(__doc__ or "").partition("\n")[0],
    )
    parser.add_argument("--config", action="config", help="YAML file of settings; flags win.")
    parser.add_argument(
        "--resume", action="store_true", help="Go on with the run named by --run after a stop."
    )
    namespace = parser.parse_args(arguments)
    resume = namespace.resume
    if resume:
        saved = RUNS / (namespace.run or "") / "config.yaml"
        if not namespace.run or not saved.is_file():
            parser.error(f"--resume needs --run NAME of a run that exists. Found no {saved}")
        before = parser.settings_of(parser.parse_args(["--config", str(saved)]))
        recipe = parser.settings_of(parser.parse_args(["--config", str(saved), *arguments]))
        for name, value in dataclasses.asdict(recipe).items():
            was = getattr(before, name)
            if value != was and not (name == "steps" and value > was):
                parser.error(
                    f"--{name} differs from the run's: {value!r}, was {was!r}. A run goes on as it "
                    "began, or for more --steps; start a new one for other settings"
                )
    else:
        recipe = parser.settings_of(namespace)
    for kind, name, available in (
        ("loss", recipe.loss, LOSSES),
        ("dataset", pipelines.entry_of(recipe.dataset), pipelines.names()),
        ("backbone", recipe.backbone, BACKBONES),
    ):
        if name not in available:
            fail(PROGRAM, unknown_name(kind, name, available))
    if recipe.run is None:
        name = as_file_name(f"{recipe.dataset}_{recipe.loss}")
        recipe = dataclasses.replace(recipe, run=free_name(name))
    elif not resume and is_taken(recipe.run):
        fail(PROGRAM, f"run {recipe.run!r} exists. Choose another --run, or go on with --resume")
    return recipe, resume


def is_taken(name):
    return (RUNS / name).exists() or (SAVED_MODELS / name).exists()


def free_name(name):
    """`name`, or `name_2`, `name_3`, ... where it is taken."""
    number = 1
    while is_taken(name if number == 1 else f"{name}_{number}"):
        number += 1
    return name if number == 1 else f"{name}_{number}"


def check_files(recipe):
    """Refuses what neither the images nor TensorFlow are needed for."""
    if recipe.init_from:
        source_of(recipe.init_from)
    if recipe.data_dir is None or os.path.exists(os.path.expanduser(recipe.data_dir)):
        # If not, loading says first what the images are.
        check_weights(recipe)
        preprocessing_of(recipe)
    pipelines.Augmentation().changed(**recipe.augmentation)
    for option in recipe.sampler_options:
        options = SAMPLER_OPTIONS[recipe.sampler]
        if option not in options:
            raise ValueError(unknown_option(f"sampler {recipe.sampler!r}", option, options))
    hard = recipe.sampler_options.get("hard_neighbours", False)
    check(isinstance(hard, bool), "`hard_neighbours` must be true or false", hard_neighbours=hard)


def check_model(recipe):
    """Refuses options of the loss, the network and the export. Imports TensorFlow."""
    import_tensorflow()
    from tfdml import losses
    from tfdml.models.embedder import dropout_of_levels
    from tfdml.serving.options import export_options

    loss = losses.get(recipe.loss, **recipe.loss_options)
    levels, most = levels_of(recipe, loss), BACKBONES[recipe.backbone][1]
    check(
        levels <= most,
        f"backbone {recipe.backbone!r} has levels from 1 to {most}",
        levels=levels,
    )
    check(
        loss.levels in (1, levels),
        f"`levels` must be those of loss {recipe.loss!r}, {loss.levels}",
        levels=recipe.levels,
    )
    check(
        recipe.embedding_dim is not None or levels == 1,
        "`embedding_dim` must be a number where there are several levels",
        embedding_dim=None,
        levels=levels,
    )
    check(
        recipe.exit_multiplier is None or levels > 1,
        "`exit_multiplier` is of early exits, which a model of 1 level has not",
        exit_multiplier=recipe.exit_multiplier,
    )
    dropout_of_levels(recipe.dropout, levels)
    options = export_options(recipe.export_options)
    check(
        options.precision == "float32",
        "a run is exported as float32: `evaluate.py --export` rounds it, and tells what is lost",
        precision=options.precision,
    )


def check_weights(recipe):
    """Raises a ValueError that says how to get a file of weights that is not there."""
    if recipe.weights in (None, "imagenet") or os.path.isfile(recipe.weights):
        return
    import_tensorflow()
    from tfdml.models.caffe import how_to_convert

    hint = how_to_convert(recipe.backbone)
    raise ValueError(
        f"`weights` must be an existing file{': ' if hint else ''}{hint}. "
        f"Received: weights={recipe.weights!r}"
    )


def levels_of(recipe, loss):
    return recipe.levels or loss.levels


def load_images(recipe):
    """Images to train on, images to score and which are queries, and the dataset of them."""
    dataset = pipelines.load(
        recipe.dataset,
        data_dir=recipe.data_dir,
        skip_invalid=recipe.skip_invalid,
        boxes=recipe.boxes,
    )
    image_size = dataset.image_size
    if recipe.image_size:
        image_size = (recipe.image_size, recipe.image_size, image_size[2])
    dataset = dataclasses.replace(
        dataset,
        image_size=image_size,
        augmentation=augmentation_of(recipe, dataset),
        preprocessing=preprocessing_of(recipe),
    )
    dataset.preprocessing.check_sizes(image_size, dataset.augmentation)
    train_split, (test_split, queries) = dataset.train, dataset.scored()
    if recipe.validation_share:
        train_split, test_split = pipelines.hold_out_classes(train_split, recipe.validation_share)
        queries = None
    counts_classes = recipe.classes_per_batch and recipe.sampler not in ("whole_classes", "pairs")
    if counts_classes and recipe.classes_per_batch > train_split.num_classes:
        raise ValueError(
            "`classes_per_batch` must not exceed the number of training classes. Received: "
            f"classes_per_batch={recipe.classes_per_batch}, classes={train_split.num_classes}"
        )
    train_split = train_split.renumbered()  # what a loss keeps of each class it finds by its id
    check(
        test_split.num_classes < len(test_split.labels),
        "a class to score must have 2 images or more, of which one finds the other",
        images=len(test_split.labels),
        classes=test_split.num_classes,
    )
    print(
        f"{dataset.name}: {len(train_split.labels):,} images of {train_split.num_classes:,} "
        f"classes to train, {len(test_split.labels):,} of {test_split.num_classes:,} to score"
    )
    return train_split, (test_split, queries), dataset


def with_defaults(recipe, split):
    """The recipe with the defaults that follow from the weights and the classes, printed."""
    recipe, reasons = recipe.completed(split.num_classes)
    for name, reason in reasons.items():
        print(f"--{name} {reason}")
    return recipe


def augmentation_of(recipe, dataset):
    """The dataset's random changes with those of the recipe.

    A crop of the preprocessing takes the place of the dataset's, unless the recipe asks for one.
    """
    if recipe.takes_crops and "crop" not in recipe.augmentation:
        return dataset.augmentation.changed(crop=1.0, **recipe.augmentation)
    return dataset.augmentation.changed(**recipe.augmentation)


def preprocessing_of(recipe):
    mean = recipe.mean_image
    return pipelines.Preprocessing(
        warp_size=recipe.warp_size,
        keep_aspect=recipe.keep_aspect,
        trim_white=recipe.trim_white,
        mean_image=None if mean is None else pipelines.read_mean_image(mean),
    )


def build_model(recipe, split, dataset):
    import keras

    import tfdml

    keras.utils.set_random_seed(recipe.seed)
    loss = tfdml.losses.get(recipe.loss, **recipe.loss_options)
    embedder = tfdml.models.build_embedder(
        recipe.backbone,
        recipe.embedding_dim,
        input_shape=dataset.image_size,
        weights=recipe.weights,
        normalize=loss.normalize,
        levels=levels_of(recipe, loss),
        dropout=recipe.dropout,
        mirror=recipe.mirror,
    )
    if recipe.init_from:
        copy_weights(recipe, embedder)
    if isinstance(loss, tfdml.losses.DensityAdaptiveLoss):
        loss = of_classes(recipe, loss, embedder, split, dataset)
    multipliers = multipliers_of(recipe, embedder)
    for layer in loss.layers:
        if layer.trainable:
            own = getattr(layer, "learning_rate_multiplier", recipe.head_multiplier)
            multipliers[f"^{layer.name}/"] = own
    options = {
        "learning_rate": learning_rate(recipe),
        "multipliers": multipliers,
        "bias_multiplier": recipe.bias_multiplier,
        "l2": recipe.weight_decay,
        "head_steps": recipe.head_steps if multipliers else 0,  # without new layers all learn
    }
    if recipe.optimizer == "adam":
        optimizer = tfdml.optimizers.Adam(**options)
    else:
        optimizer = tfdml.optimizers.SGD(momentum=0.9, **options)
    model = tfdml.EmbeddingModel(embedder)
    model.compile(optimizer=optimizer, loss=loss)
    images, width = len(split.labels), embedder.output_shape[-1]
    check_fits(4 * images * width, "embeddings of all images", images=images, embedding_dim=width)
    # What a loss cannot be computed from, it says now, before the run has a folder.
    rows = keras.ops.zeros((2, *embedder.output_shape[1:]))
    loss([0, split.num_classes - 1], rows)
    return model


def source_of(run):
    """The checkpoint of a run, given by its name, its folder or the file itself."""
    for path in (RUNS / run / "checkpoint.keras", pathlib.Path(run) / "checkpoint.keras", run):
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(
        "`init_from` must be a run with a checkpoint, or a .keras file. "
        f"Received: init_from={run!r}"
    )


def copy_weights(recipe, embedder):
    """Gives the embedder the weights of the run that `init_from` names."""
    model = read_model(source_of(recipe.init_from))
    weights = getattr(model, "embedder", model).get_weights()
    shapes = [[each.shape for each in some] for some in (weights, embedder.get_weights())]
    check(
        shapes[0] == shapes[1],
        "`init_from` must be a run of the same backbone, embedding_dim, levels and channels",
        init_from=recipe.init_from,
    )
    embedder.set_weights(weights)


def multipliers_of(recipe, embedder):
    """Patterns of the variables of the embedding layers and exits, and their multipliers."""
    exits = recipe.exit_multiplier or recipe.head_multiplier
    multipliers = {r"^embedding\d?/": recipe.head_multiplier, r"^(exit|loss)\d_\w+/": exits}
    paths = [variable.path for variable in embedder.trainable_variables]
    return {
        pattern: multiplier
        for pattern, multiplier in multipliers.items()
        if any(re.search(pattern, path) for path in paths)
    }


def of_classes(recipe, loss, embedder, split, dataset):
    """The density-adaptive loss of these classes, their densities measured before training."""
    import tfdml
    from pipelines.images import named

    known = {"num_classes": split.num_classes}
    check(
        loss.num_classes in (None, split.num_classes),
        "the loss must know as many classes as there are to train",
        num_classes=loss.num_classes,
        classes=split.num_classes,
    )
    if loss.regularizer.correlation and loss.regularizer.initial_density is None:
        print("Measuring the density of the training classes", flush=True)
        images = images_to_score(split, dataset)
        with named(split):
            features = tfdml.models.backbone_of(embedder).predict(images, verbose=progress())
        known["initial_density"] = tfdml.evaluation.class_density(features, split.labels)
    return tfdml.losses.get(recipe.loss, **{**known, **recipe.loss_options})


def training_batches(recipe, start_step, split, dataset):
    """The batches from a step on, and the callbacks that they need."""
    classes, images = recipe.classes_per_batch, recipe.images_per_class
    options = {
        "seed": recipe.seed,
        "image_size": dataset.image_size,
        "augmentation": dataset.augmentation,
        "preprocessing": dataset.preprocessing,
        "start_step": start_step,
    }
    if recipe.sampler == "groups":
        options |= recipe.sampler_options
        return pipelines.group_batches(split, classes, classes * images, **options), []
    if recipe.sampler == "whole_classes":
        return pipelines.whole_class_batches(split, classes * images, **options), []
    if recipe.sampler == "pairs":
        neighbours, callbacks = hard_neighbours(recipe, split, dataset)
        options |= recipe.sampler_options | {"hard_neighbours": neighbours}
        return pipelines.pair_batches(split, classes * images, **options), callbacks
    return pipelines.balanced_batches(split, classes, images, **options, sampler=recipe.sampler), []


def images_to_score(split, dataset):
    """The images of a split, as the served model sees them."""
    size, preprocessing = dataset.image_size, dataset.preprocessing
    return pipelines.evaluation_batches(split, size, preprocessing=preprocessing)


def hard_neighbours(recipe, split, dataset):
    """The hard neighbours that the sampler asks for, if it does, and what refreshes them."""
    import tfdml

    if not recipe.sampler_options.get("hard_neighbours"):
        return None, []
    neighbours = pipelines.HardNeighbours(
        split.labels, recipe.classes_per_batch * recipe.images_per_class, recipe.checkpoint_every
    )
    images = images_to_score(split, dataset)
    return neighbours, [tfdml.callbacks.EmbeddingsOfEpoch(images, neighbours.refresh)]


def check_same_classes(folder, files):
    """Refuses to go on with other classes: the images changed since the run began."""
    path = folder / "trained_classes.json"
    if path.is_file() and path.read_text() != files[path.name]:
        raise ValueError(
            f"the classes to train are not those that {folder} began with ({path}). Restore the "
            "images, or start a new run"
        )


def learning_rate(recipe):
    from keras.optimizers.schedules import CosineDecay, ExponentialDecay

    if recipe.schedule == "step":
        factor = 0.1 if recipe.decay_factor is None else recipe.decay_factor
        return ExponentialDecay(recipe.learning_rate, recipe.decay_every, factor, staircase=True)
    steps = max(1, recipe.steps - recipe.warmup_steps)
    lowest = 0.0 if recipe.schedule == "cosine" else 1.0  # share of the learning rate
    if not recipe.warmup_steps:
        return CosineDecay(recipe.learning_rate, steps, alpha=lowest)
    return CosineDecay(
        0.0,
        steps,
        alpha=lowest,
        warmup_target=recipe.learning_rate,
        warmup_steps=recipe.warmup_steps,
    )


def load_checkpoint(recipe, folder):
    """The model at the last checkpoint of a run that stopped; None before the first."""
    from tfdml.serving.metadata import read_metadata
    from tfdml.serving.versions import versions_of

    versions = versions_of(SAVED_MODELS / folder.name)
    if versions:
        newest = versions[max(versions)]
        if read_metadata(newest).get("recipe", {}).get("steps", recipe.steps) >= recipe.steps:
            raise FileExistsError(
                f"run {folder.name!r} is complete: {newest}. To train it further, give more "
                f"--steps than {recipe.steps}"
            )
    path = folder / "checkpoint.keras"
    if not path.is_file():
        return None
    try:
        model = read_model(path)
    except ValueError as error:
        raise ValueError(f"{error}. Delete {folder} and start over") from error
    model.optimizer.learning_rate = learning_rate(recipe)  # over the steps of today
    return model


def read_model(path):
    import keras

    import tfdml

    tfdml.register()
    try:
        return keras.models.load_model(path)
    except Exception as error:  # what a broken archive raises has no common class
        raise ValueError(f"{path} cannot be read ({error})") from error


@contextlib.contextmanager
def only_writer(folder):
    """Locks a run: of two processes that write to it, the second is rejected."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BlockingIOError(f"another process is training run {folder.name!r}") from None
        yield


def make_folders(folder, files):
    """Makes the run's folder, which appears with its first files or not at all."""
    RUNS.mkdir(exist_ok=True)
    SAVED_MODELS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=RUNS) as unfinished:
        new = pathlib.Path(unfinished) / folder.name
        (new / "logs").mkdir(parents=True)
        for name, text in files.items():
            (new / name).write_text(text)
        try:
            new.rename(folder)
        except OSError as error:
            if not folder.exists():
                raise
            raise FileExistsError(
                f"another process has just begun run {folder.name!r}. Choose another --run"
            ) from error


@contextlib.contextmanager
def resumable(run, dataset):
    """Says how to go on after Ctrl-C, or after an error of TensorFlow with the image to mend."""
    import tensorflow as tf

    from pipelines import images

    go_on = f"Go on with: python train.py --run {run} --resume"
    with interrupts_noted() as interrupts:
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if interrupts or isinstance(error, KeyboardInterrupt):
                print(f"\nStopped. {go_on}", file=sys.stderr)
                raise SystemExit(130) from None
            if isinstance(error, tf.errors.OpError):
                cause = images.cause_of(error, *dataset.splits.values())
                raise OSError(f"{cause}. {go_on}") from error
            raise


@contextlib.contextmanager
def interrupts_noted():
    """A list that holds something after Ctrl-C: TensorFlow may lose the exception, or wrap it."""
    interrupts = []
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interrupts
        return

    def note(*arguments):
        interrupts.append(arguments)
        signal.default_int_handler(*arguments)

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def progress():
    return 1 if sys.stdout.isatty() else 2  # a bar, or a line per epoch in a log file


def fit(recipe, folder, model, batches, callbacks, scored, dataset):
    """Trains to the last step; returns the scores of the untrained and the trained embedder.

    Those of the untrained alone if there are no steps.
    """
    import keras

    import tfdml

    test_split, queries = scored
    counts = [k for k in NEIGHBOURS if k <= pipelines.rows_to_find(test_split, queries)]

    def score(title):
        print(title, flush=True)
        images = images_to_score(test_split, dataset)
        embeddings = model.embed(images, verbose=progress())
        data, gallery = tfdml.evaluation.apart(embeddings, test_split.labels, queries)
        recalls = tfdml.evaluation.recall_at_k(*data, k=counts, **gallery)
        found = {f"recall@{k}": recall for k, recall in recalls.items()}
        if model.loss.learns_similarity and test_split.num_classes > 1:
            found["similarity_auc"] = similarity_auc(model, embeddings, test_split.labels)
        return found

    start = int(model.optimizer.iterations)
    scores_path = folder / "scores.json"
    if scores_path.exists():
        scores = json.loads(scores_path.read_text())
        if "trained" in scores and start >= recipe.steps:  # stopped in the export
            return scores
    else:
        scores = {"untrained": score("Scoring the untrained embedder")}
        write_text(scores_path, json.dumps(scores, indent=2) + "\n")
    callbacks = [
        tfdml.callbacks.StopOnNaN(),
        tfdml.callbacks.WatchDensityTargets(folder / "logs" / "train"),
        keras.callbacks.TensorBoard(str(folder / "logs")),
        keras.callbacks.CSVLogger(str(folder / "logs" / "epochs.csv"), append=start > 0),
        tfdml.callbacks.Checkpoint(folder / "checkpoint.keras"),
        tfdml.callbacks.StopAt(recipe.steps),
        *callbacks,
    ]
    shows_bar = progress() == 1
    if not shows_bar:
        callbacks.append(tfdml.callbacks.ProgressLines(recipe.steps))
    if recipe.validation_share:
        images = images_to_score(test_split, dataset)
        callbacks.insert(1, tfdml.callbacks.RetrievalScores(images, test_split.labels))
    seconds = 0.0
    if recipe.steps:
        began = time.perf_counter()
        first = -(-start // recipe.checkpoint_every)
        model.fit(
            batches,
            steps_per_epoch=recipe.checkpoint_every,
            initial_epoch=first,
            epochs=first + -(-(recipe.steps - start) // recipe.checkpoint_every),
            callbacks=callbacks,
            shuffle=False,  # the batches are shuffled; spares a warning
            verbose=int(shows_bar),
        )
        seconds = time.perf_counter() - began
        scores["trained"] = score("Scoring the trained embedder")
        scores["improved"] = scores["trained"]["recall@1"] > scores["untrained"]["recall@1"]
        if "similarity_auc" in scores["trained"]:
            scores["similarity_collapsed"] = scores["trained"]["similarity_auc"] < COLLAPSED
    scores["scored_classes"] = "validation" if recipe.validation_share else "test"
    scores["levels"] = levels_of(recipe, model.loss)
    scores["learns_similarity"] = model.loss.learns_similarity
    scores["train_seconds"] = round(seconds, 1)
    scores["train_seconds_from_step"] = start
    write_text(scores_path, json.dumps(scores, indent=2) + "\n")
    return scores


def similarity_auc(model, embeddings, labels):
    """How often the learned similarity of two images of a class is above that of two classes."""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    from tfdml.evaluation.pairs import sample_pairs

    pairs = np.concatenate(sample_pairs(labels, PAIRS))
    similarities = model.similarity(*np.moveaxis(embeddings[pairs], 1, 0))
    return float(roc_auc_score(np.repeat([True, False], PAIRS), similarities))


def report(recipe, folder, scores, num_classes):
    from tfdml.evaluation.report import plot_training, scores_table

    if recipe.steps:
        plot_training(folder / "logs" / "epochs.csv", scores, folder / "training.png")
    print(
        f"\nUnseen {scores['scored_classes']} classes of {recipe.dataset}; {recipe.loss}, "
        f"{recipe.steps - scores['train_seconds_from_step']} steps in "
        f"{scores['train_seconds']:.0f} s:\n{scores_table(scores)}"
    )
    failures = []
    if not scores.get("improved", True):
        failures.append("Training made retrieval worse than it was untrained.")
    if scores.get("similarity_collapsed"):
        auc = scores["trained"]["similarity_auc"]
        failures.append(
            f"The learned similarity does not tell classes apart: of two pairs it scores the one "
            f"of a single class higher in {auc:.0%} of cases, where chance is 50%."
        )
    if failures:
        print(f"\n{' '.join(failures)} Try first:")
        for advice in what_to_try(recipe, num_classes):
            print(f"  {advice}")


def what_to_try(recipe, num_classes):
    """What to change first where training made retrieval worse, as sentences."""
    yield f"A lower learning rate: --learning_rate {recipe.learning_rate / 10:g}"
    if recipe.weights and recipe.head_multiplier < 10:
        yield "New layers that learn faster than the pretrained ones: --head_multiplier 10"
    classes = min(2 * recipe.classes_per_batch, num_classes)
    if classes > recipe.classes_per_batch:
        yield f"More negatives in a batch: --classes_per_batch {classes}"
    yield f"Another objective: --loss {'contrastive' if recipe.loss == 'npair' else 'npair'}"


def npy_of(array):
    """The bytes of a .npy file."""
    import numpy as np

    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def export(recipe, model, dataset, files, scores):
    from pipelines import images
    from tfdml import serving
    from tfdml.serving.exported import MEAN_IMAGE
    from tfdml.serving.options import export_options
    from tfdml.serving.versions import versions_of

    mean = dataset.preprocessing.mean_image
    return serving.export_model(
        model.embedder,
        SAVED_MODELS / recipe.run / str(1 + max(versions_of(SAVED_MODELS / recipe.run), default=0)),
        read_image=images.reader(dataset.image_size, dataset.preprocessing),
        loss=model.loss,
        assets={} if mean is None else {MEAN_IMAGE: npy_of(mean)},
        options=export_options(recipe.export_options),
        metadata={
            "recipe": dataclasses.asdict(recipe),
            "trained_classes": json.loads(files["trained_classes.json"]),
            "scores": scores,
        },
    )


if __name__ == "__main__":
    main()
