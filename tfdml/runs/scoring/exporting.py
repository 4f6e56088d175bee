"""Exports the model that was scored once more, with what rounded weights lose."""

import pathlib
import tempfile

from tfdml.runs.scoring.images import ids_of
from tfdml.serving import exported


def model_to_export(settings, model):
    """The model of the run that exported a version, with its options; None without `export`."""
    if not settings.export:
        return None
    from tfdml.serving import export
    from tfdml.serving.metadata import read_metadata
    from tfdml.serving.options import export_options, options_kept

    version, before = model.version, read_metadata(model.version)
    options = export_options({**options_kept(before), **settings.export_options})
    export.check_same_run(pathlib.Path(settings.export), version)
    if not before or "run" not in model.recipe:
        raise ValueError(
            f"`export` takes the model of a run: {version} does not state which run exported it"
        )
    folder = version.resolve().parents[2]  # of saved_models/NAME/1
    run = export.load_run(folder / "runs" / model.recipe["run"])
    return export.serve_run(run, version, before["levels"], options)


def export_scored(settings, model, images, served, results):
    """Writes the model that was scored, with the options of its export.

    Its embeddings are those of a first copy: what rounded weights lose is measured on what is
    served, and is written to the metadata.

    Returns:
        The path of the version.
    """
    import numpy as np

    from tfdml import evaluation
    from tfdml.serving import Gallery, class_means, export
    from tfdml.serving.metadata import read_metadata
    from tfdml.serving.options import TOP
    from tfdml.serving.versions import megabytes

    version, split, queries = model.version, images.split, images.queries
    precision, before = served.options.precision, read_metadata(version)["precision"]
    with tempfile.TemporaryDirectory() as folder:
        copy = served.write(pathlib.Path(folder) / "1")
        signature = exported.load_signatures(copy)["embed_images"]
        embeddings = model.embed(settings, split, signature)
        size = megabytes(copy)
    data, gallery = evaluation.apart(embeddings, split.labels, queries)
    recall = evaluation.recall_at_k(*data, k=1, **gallery)[1]
    scores = {
        before: {"recall@1": results["scores"].get("recall@1"), "megabytes": megabytes(version)},
        precision: {"recall@1": recall, "megabytes": size},
    }
    shown = np.ones(len(split.labels), bool) if queries is None else ~queries
    found, rows = split.subset(shown), embeddings[shown]
    if settings.export_classes:
        served.add_classes(class_means(rows, found.labels, found.names), top=TOP)
    if settings.export_gallery:
        names = dict(zip(np.unique(found.labels).tolist(), found.names, strict=True))
        classes = [names[label] for label in found.labels.tolist()]
        ids = ids_of(settings, split)
        gallery = Gallery([ids[row] for row in np.flatnonzero(shown)], rows, classes)
        served.add_gallery(gallery, top=TOP)
    known = {"precision_scores": scores} if precision != before else {}
    path = export.write_next(served, pathlib.Path(settings.export), version, **known)
    for name, of_precision in scores.items():
        recall = of_precision["recall@1"]
        print(f"{name:>7}: recall@1 {recall:.4f}, {of_precision['megabytes']:.1f} MB")
    return path
