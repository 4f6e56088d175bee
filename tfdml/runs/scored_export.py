"""What rounded weights lose, and the export of the model that was scored."""

import pathlib
import tempfile

import numpy as np

from tfdml import evaluation
from tfdml.runs import exporting
from tfdml.runs.scoring.embedded import embed, joined
from tfdml.runs.scoring.scored_images import load_images
from tfdml.runs.scoring.scored_model import completed, find_model
from tfdml.runs.task_options import Retrieval
from tfdml.serving import Gallery, class_means, exported
from tfdml.serving.nearest import check_rows
from tfdml.serving.options import TOP, export_options, options_kept
from tfdml.serving.versions import megabytes


def score_rounded(served, trained, levels=None, dims=None):
    """`precision_scores` of a `ServedModel` and of the version that its run exported.

    Scored on the images that the run is scored on. `levels` and `dims` are those that it has of
    each embedding, all if None. Raises a ValueError, OSError or ImportError if they cannot be read.
    """
    options = Retrieval(str(trained), levels=levels, dims=dims)
    model = find_model(options)
    options = completed(options, model)
    images = load_images(options, model)
    rows = embed(options, model, images.split)
    exact = recall_of(joined(options, model, images, rows).embeddings, images)
    return compare_precisions(options, model, images, served, exact)[0]


def compare_precisions(options, model, images, served, exact):
    """`precision_scores` of a `ServedModel`, beside the exact ones, and its embeddings."""
    with tempfile.TemporaryDirectory() as folder:
        copy = served.write(pathlib.Path(folder) / "1")
        signature = exported.load_signatures(copy)["embed_images"]
        embeddings, size = embed(options, model, images.split, signature), megabytes(copy)
    before = model.metadata.get("precision") or "float32"
    scores = {
        before: {"recall@1": exact, "megabytes": megabytes(model.version)},
        served.options.precision: {"recall@1": recall_of(embeddings, images), "megabytes": size},
    }
    for name, found in scores.items():
        print(f"{name:>7}: recall@1 {found['recall@1']:.4f}, {found['megabytes']:.1f} MB")
    return scores, embeddings


def recall_of(embeddings, images):
    """Recall@1 by distance."""
    data, gallery = evaluation.apart(embeddings, images.labels, images.queries)
    return evaluation.recall_at_k(*data, k=1, **gallery)[1]


def model_to_export(options, model):
    """The model of the run that exported a version, with its options."""
    version, before = model.version, model.metadata
    kept = export_options({**options_kept(before), **options.export_options})
    exporting.check_same_run(pathlib.Path(options.export), version)
    if not before or "run" not in model.recipe:
        cause = f"{version} does not state which run exported it"
        raise ValueError(f"`export` takes the model of a run: {cause}")
    folder = version.resolve().parent.parent.parent  # of saved_models/NAME/1
    run = exporting.load_run(folder / "runs" / model.recipe["run"], version)
    levels = before.get("levels")
    dims = before.get("dimension") if levels == 1 else None
    return exporting.serve_run(run, version, levels, kept, dims)


def exported_rows(options, images):
    """(n,) booleans, the images that an export finds, checked: those of a gallery."""
    rows = np.ones(len(images.labels), bool) if images.queries is None else ~images.queries
    if options.export_gallery:
        check_rows(int(rows.sum()))
    return rows


def export_scored(embedded, options, served, results):
    """Writes the model that was scored, with the options of its export; returns its path."""
    images, model = embedded.images, embedded.model
    exact = results["scores"].get("recall@1")
    if exact is None:
        exact = recall_of(embedded.embeddings, images)
    scores, embeddings = compare_precisions(options, model, images, served, exact)
    shown = exported_rows(options, images)
    found, rows = images.split.subset(shown), embeddings[shown]
    if options.export_classes:
        served.add_classes(class_means(rows, found.labels, found.names), top=TOP)
    if options.export_gallery:
        found = images._replace(split=found)
        classes = [found.class_names[label] for label in found.labels.tolist()]
        served.add_gallery(Gallery(found.ids(options), rows, classes), top=TOP)
    known = {"precision_scores": scores} if len(scores) > 1 else {}
    return exporting.write_next(served, pathlib.Path(options.export), model.version, **known)
