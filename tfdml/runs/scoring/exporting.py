"""What rounded weights lose, and the export of the model that was scored."""

import pathlib
import tempfile

from tfdml.runs import exporting
from tfdml.runs.scoring.images import ids_of, load_images, names_of
from tfdml.runs.scoring.model import completed, find_model
from tfdml.runs.scoring.retrieval import Retrieval
from tfdml.serving import exported
from tfdml.serving.metadata import read_metadata
from tfdml.serving.versions import megabytes


def score_rounded(served, trained, levels=None, dims=None):
    """Scores rounded weights beside those of a run, on the images that the run is scored on.

    Args:
        served: `ServedModel`.
        trained: Path of the version that the run exported.
        levels: Number of shallowest levels that `served` has; all if None.
        dims: Numbers of an embedding that `served` has; all if None.

    Returns:
        `precision_scores` of the metadata.

    Raises:
        ValueError, OSError, ImportError: If the images cannot be read.
    """
    settings = Retrieval(str(trained), levels=levels, dims=dims)
    model = find_model(settings)
    settings = completed(settings, model)
    model = model.loaded(settings)
    images = load_images(settings, model)
    exact = recall_of(model.embed_joined(settings, images.split), images)
    return compare_precisions(settings, model, images, served, exact)[0]


def compare_precisions(settings, model, images, served, exact):
    """Scores the weights of a `ServedModel`, as stored, beside those of the scored model.

    Args:
        settings: `Retrieval`.
        model: `ScoredModel`, loaded.
        images: `Scored` images.
        served: `ServedModel` of the same run.
        exact: Recall@1 of `model`.

    Returns:
        `precision_scores` of the metadata, and the embeddings by the stored weights.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = served.write(pathlib.Path(folder) / "1")
        signature = exported.load_signatures(copy)["embed_images"]
        embeddings, size = model.embed(settings, images.split, signature), megabytes(copy)
    before = read_metadata(model.version).get("precision") or "float32"
    scores = {
        before: {"recall@1": exact, "megabytes": megabytes(model.version)},
        served.options.precision: {"recall@1": recall_of(embeddings, images), "megabytes": size},
    }
    for name, found in scores.items():
        print(f"{name:>7}: recall@1 {found['recall@1']:.4f}, {found['megabytes']:.1f} MB")
    return scores, embeddings


def recall_of(embeddings, images):
    """Recall@1 by distance."""
    from tfdml import evaluation

    data, gallery = evaluation.apart(embeddings, images.split.labels, images.queries)
    return evaluation.recall_at_k(*data, k=1, **gallery)[1]


def model_to_export(settings, model):
    """The model of the run that exported a version, with its options; None without `export`."""
    if not settings.export:
        return None
    from tfdml.serving.options import export_options, options_kept

    version, before = model.version, read_metadata(model.version)
    options = export_options({**options_kept(before), **settings.export_options})
    exporting.check_same_run(pathlib.Path(settings.export), version)
    if not before or "run" not in model.recipe:
        cause = f"{version} does not state which run exported it"
        raise ValueError(f"`export` takes the model of a run: {cause}")
    folder = version.resolve().parent.parent.parent  # of saved_models/NAME/1
    run = exporting.load_run(folder / "runs" / model.recipe["run"], version)
    levels = before.get("levels")
    dims = before.get("dimension") if levels == 1 else None
    return exporting.serve_run(run, version, levels, options, dims)


def export_scored(settings, model, images, served, results):
    """Writes the model that was scored, with the options of its export.

    Returns:
        The path of the version.
    """
    import numpy as np

    from tfdml.serving import Gallery, class_means
    from tfdml.serving.options import TOP

    exact = results["scores"].get("recall@1")
    if exact is None:
        exact = recall_of(results["embeddings"], images)
    scores, embeddings = compare_precisions(settings, model, images, served, exact)
    split, queries = images.split, images.queries
    shown = np.ones(len(split.labels), bool) if queries is None else ~queries
    found, rows = split.subset(shown), embeddings[shown]
    if settings.export_classes:
        served.add_classes(class_means(rows, found.labels, found.names), top=TOP)
    if settings.export_gallery:
        names = names_of(found)
        classes = [names[label] for label in found.labels.tolist()]
        served.add_gallery(Gallery(ids_of(settings, found), rows, classes), top=TOP)
    known = {"precision_scores": scores} if len(scores) > 1 else {}
    return exporting.write_next(served, pathlib.Path(settings.export), model.version, **known)
