"""Exports the model of a run, and again as its next version, and scores what rounding loses."""

import io
import pathlib
import tempfile
import warnings

import numpy as np
import tensorflow as tf

import pipelines
from tfdml import evaluation
from tfdml.checks import check
from tfdml.models import first_dims, first_levels, number_of_levels, with_projection
from tfdml.models.precision import in_float32
from tfdml.runs.folders import CHECKPOINT
from tfdml.runs.network import read_model
from tfdml.runs.scoring.embedded import joined
from tfdml.runs.scoring.inference import embed
from tfdml.runs.scoring.scored_images import load_images
from tfdml.runs.scoring.scored_model import completed, find_model
from tfdml.runs.task_options import Retrieval
from tfdml.serving import Gallery, ServedModel, class_means, exported, metadata, runtimes, warmup
from tfdml.serving.nearest import check_rows
from tfdml.serving.options import TOP, export_options, options_kept
from tfdml.serving.versions import megabytes, new_version, next_version, versions_of

_BY_WRITER = (warmup.FILE, metadata.FILE)  # written for every version


def assets_of(dataset):
    """{name: content} of the files that an export takes with it: that of the mean image."""
    mean, file = dataset.preprocessing.mean_image, io.BytesIO()
    if mean is None:
        return {}
    np.save(file, mean)
    return {exported.MEAN_IMAGE: file.getvalue()}


def export_head(embedder, path, training):
    """Writes a version whose `serving_default` takes `features` (n, width) floats."""
    spec = tf.TensorSpec([None, embedder.input_shape[1]], name="features")

    @tf.function(input_signature=[spec], autograph=False)
    def embed(features):
        return {"embedding": embedder(features, training=False)}

    written = tf.Module()
    written.variables_of_head = [variable.value for variable in embedder.variables]
    with new_version(path) as unfinished:
        tf.saved_model.save(written, str(unfinished), {"serving_default": embed})
        (unfinished / "assets.extra").mkdir()
        known = {**training, "recipe": metadata.without_folders(training["recipe"])}
        metadata.write_metadata(unfinished / "assets.extra", known)
    return path


def load_run(run, trained):
    """The model at the last checkpoint of a run's folder, which exported the version `trained`."""
    checkpoint = run / CHECKPOINT
    expectation = f"{trained} has components of `pca` alone: give the version that its run exported"
    check("projection" not in metadata.read_metadata(trained), expectation)
    model = read_model(checkpoint)
    steps, version = int(model.optimizer.iterations), exported.recipe_of(trained).get("steps")
    expectation = (
        f"{checkpoint} was trained further than {trained}: end the run by --resume, or give its "
        "last version"
    )
    # Steps whose gradients overflow in float16 do not count.
    check(version is None or steps <= version, expectation, steps=steps, version=version)
    return model


def serve_run(model, trained, levels=None, options=None, dims=None, projection=None):
    """The `ServedModel` of a run, which reads images as the version that it exported, `trained`.

    It keeps the shallowest `levels`, or of a model of one level the first `dims`; those of the
    version if None.
    """
    embedder, before = in_float32(model.embedder), metadata.read_metadata(trained)
    levels = before.get("levels") if levels is None else levels
    if dims is None and before.get("levels") == 1:
        dims = before.get("dimension")
    if levels not in (None, number_of_levels(embedder)):
        embedder = first_levels(embedder, levels)
    if dims not in (None, embedder.output_shape[-1]):
        embedder = first_dims(embedder, dims)
    if projection is not None:
        embedder = with_projection(embedder, *projection)
    whole = projection is None and embedder.output_shape == model.embedder.output_shape
    reader = tf.saved_model.load(str(trained))
    expected = f"{trained} must be one that tfdml exported, with the function read_image"
    check(hasattr(reader, "read_image"), expected, signatures=list(reader.signatures))
    return ServedModel(embedder, reader.read_image, model.loss if whole else None, options=options)


def run_of(version):
    """The folder of the run that exported a version, beside that of the versions."""
    name = exported.recipe_of(version).get("run")
    if not name:
        cause = f"{version} does not state which run exported it"
        raise ValueError(f"an export takes the model of a run: {cause}")
    return version.resolve().parent.parent.parent / "runs" / name  # of saved_models/NAME/1


def check_same_run(out, trained):
    """Raises a FileExistsError if a folder holds versions of another run than `trained`."""
    settings = _settings_of(trained)
    for other in versions_of(out).values():
        if _settings_of(other) != settings:
            raise FileExistsError(f"{other} is of another run: choose another folder for this one")


def _settings_of(version):
    """The settings of the training of a version, but for the steps and the folders."""
    return {**metadata.without_folders(exported.recipe_of(version)), "steps": None}


def write_next(served, out, trained, images=None, **known):
    """Writes the next version of a folder, with the metadata, but for `known`, of `trained`."""
    before = metadata.read_metadata(trained)
    stated = {**before.get("top", {}), **({"decide": 1} if "decision" in before else {})}
    if lost := [name for name in stated if name not in served.signatures]:
        how = "export it by tfdml-evaluate, as before, to have them"
        warnings.warn(f"without {' and '.join(lost)} of {trained}: {how}", stacklevel=2)
    kept = ["recipe", "trained_classes"]
    if served.dim == before.get("dimension"):  # scores hold only for all levels
        kept.append("scores")
    known = {**{name: before.get(name) for name in kept}, **known}
    files = [file for file in (trained / "assets.extra").glob("*") if file.is_file()]
    assets = {file.name: file.read_bytes() for file in files if file.name not in _BY_WRITER}
    return served.write(next_version(out), assets=assets, metadata=known, images=images)


def score_rounded(served, trained, levels=None, dims=None):
    """`precision_scores` of a `ServedModel` and of the version that its run exported."""
    options = Retrieval(str(trained), levels=levels, dims=dims)
    model = find_model(options)
    options = completed(options, model)
    images = load_images(options, model)
    rows = embed(options, model, images.split)
    exact = recall_of(joined(options, model, images, rows).embeddings, images)
    return compare_precisions(options, model, images, served, exact)[0]


def compare_precisions(options, model, images, served, exact):
    """`precision_scores` of a `ServedModel` and its files, beside the exact, and its embeddings."""
    before = model.metadata.get("precision") or "float32"
    scores = {before: {"recall@1": exact, "megabytes": megabytes(model.version)}}
    with tempfile.TemporaryDirectory() as folder:
        shown = sample(images.split, served.image_shape, model.preprocessing)
        copy = served.write(pathlib.Path(folder) / "1", images=shown)
        found = {served.options.precision: exported.load_signatures(copy)["embed_images"]}
        sizes = {served.options.precision: megabytes(copy)}
        for file, stated in metadata.read_metadata(copy).get("files", {}).items():
            if file.startswith(f"{runtimes.NETWORK}."):
                found[stated["format"]] = runtimes.load_network(copy / file)
                sizes[stated["format"]] = stated["megabytes"]
        rows = {name: embed(options, model, images.split, each) for name, each in found.items()}
    for name, embeddings in rows.items():
        scores[name] = {"recall@1": recall_of(embeddings, images), "megabytes": sizes[name]}
    for name, each in scores.items():
        print(f"{name:>8}: recall@1 {each['recall@1']:.4f}, {each['megabytes']:.1f} MB")
        if (lost := exact - each["recall@1"]) > 0.01:
            words = f"recall@1 of {name} is {100 * lost:.1f} points below that of {before}"
            warnings.warn(f"{words}: export it with another `precision`", stacklevel=2)
    return scores, rows[served.options.precision]


def sample(split, image_size, preprocessing):
    """Up to 64 images of all of a split, as the served model sees them."""
    step = -(-len(split.labels) // runtimes.VERIFIED)
    some = split.subset(slice(None, None, step)), image_size, runtimes.VERIFIED
    return next(iter(pipelines.evaluation_batches(*some, preprocessing=preprocessing))).numpy()


def recall_of(embeddings, images):
    data, gallery = evaluation.apart(embeddings, images.labels, images.queries)
    return evaluation.recall_at_k(*data, k=1, **gallery)[1]


def model_to_export(options, model, projection=None):
    """The model of the run that exported a version, with its options, and behind it `pca`."""
    version = model.version
    kept = export_options({**options_kept(model.metadata), **options.export_options})
    check_same_run(pathlib.Path(options.export), version)
    run = load_run(run_of(version), version)
    return serve_run(run, version, options=kept, projection=projection)


def exported_rows(options, images):
    """(n,) booleans, the images that an export finds, checked: those of a gallery."""
    rows = np.ones(len(images.labels), bool) if images.queries is None else ~images.queries
    if options.export_gallery:
        check_rows(int(rows.sum()))
    return rows


def export_scored(embedded, options, served, results):
    """Writes the model that was scored, with the options of its export; returns its path."""
    images, model = embedded.images, embedded.model
    if embedded.projection:
        served = model_to_export(options, model, embedded.projection)
    exact = results["scores"].get("recall@1")
    if exact is None:
        exact = recall_of(embedded.embeddings, images)
    scores, embeddings = compare_precisions(options, model, images, served, exact)
    shown = exported_rows(options, images)
    found, rows = images.split.subset(shown), embeddings[shown]
    some = sample(images.split, served.image_shape, model.preprocessing)
    names, labels = found.names, found.labels
    if options.task == "open_set":
        kind = options.given("seed", "false_alarm_rate")
        decision = evaluation.open_set_decision(rows, labels, names, **kind)
        facts = ", ".join(f"{name} {value:.4g}" for name, value in decision.facts.items())
        print(f"The exported rule is that of {decision.rule.method}: {facts}")
        served.add_decision(decision)
    if options.export_classes or options.task == "open_set":
        served.add_classes(class_means(rows, labels, names), top=TOP)
    if options.export_gallery:
        found = images._replace(split=found)
        classes = [found.class_names[label] for label in found.labels.tolist()]
        served.add_gallery(Gallery(found.ids(options), rows, classes), top=TOP)
    known = {"precision_scores": scores} if len(scores) > 1 else {}
    if embedded.projection:
        known["projection"] = options.given("pca", "whiten")
    return write_next(served, pathlib.Path(options.export), model.version, some, **known)
