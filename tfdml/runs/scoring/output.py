"""The files of scores: their names, the scores as JSON, and the values of each query."""

import dataclasses
import hashlib
import json
import math
import os
import pathlib

import tfdml
from tfdml.files import as_file_name, shortened, write_text
from tfdml.runs.scoring.images import ids_of


def path_of(settings, model):
    """Where the scores are written: `out`, or a name that encodes the settings off default.

    That of a run that is scored is in its folder.
    """
    if settings.out:
        return pathlib.Path(settings.out)
    run = pathlib.Path(settings.model)
    folder = run if (run / "config.yaml").is_file() else pathlib.Path("runs", model.name)
    return folder / shortened("_".join(_words(settings, model)), ".json")


def _words(settings, model):
    yield "evaluation"
    yield from settings.words
    for name in settings.changed(settings.naming):
        yield f"{name}_{as_file_name(str(getattr(settings, name)))}"
    if not model.was_trained_on(settings):
        yield as_file_name(settings.dataset)
        if settings.data_dir:
            yield pathlib.Path(settings.data_dir).resolve().name
    own = model.recipe.get("boxes") if model.was_trained_on(settings) else None
    if settings.boxes not in (None, own):
        yield f"in_{pathlib.Path(settings.boxes).stem}"
    if settings.split != "test":
        yield settings.split
    if settings.level_weights:
        yield "weights"
        yield from (f"{weight:g}" for weight in settings.level_weights)
    if settings.levels:
        yield f"levels_{settings.levels}"
    if settings.dims:
        yield f"dims_{settings.dims}"
    if settings.crops > 1:
        yield f"crops_{settings.crops}"
    if settings.mirror:
        yield "mirror"


def write(settings, model, results):
    """Writes the scores and the settings as JSON; numbers that are not finite as null."""
    content = {
        "version": str(model.version),
        **dataclasses.asdict(settings),
        "task": settings.task,
        "rank_by": settings.rank_by,
        "scored_levels": model.levels,
    }
    del content["levels"]  # the name of the scores of each level alone
    out = pathlib.Path(settings.out)
    queries_path(out).unlink(missing_ok=True)
    write_json(out, {**content, **results})


def write_json(out, content):
    """Writes a file of scores; numbers that are not finite as null."""
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, json.dumps(finite(content), indent=2, allow_nan=False) + "\n")


def finite(content):
    """The content with None for numbers that JSON does not have."""
    if isinstance(content, dict):
        return {str(name): finite(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def queries_path(scores):
    """Where the values of each query are, beside a file of scores."""
    return scores.with_name(shortened(scores.stem, "_queries.npz"))


def write_queries(settings, images, per_query):
    """Writes the values of each query beside the scores, for comparisons."""
    import numpy as np

    split, queries = images.split, images.queries
    labels, ids = split.labels, ids_of(settings, split)
    if split.holds_records:
        content = "\0".join(ids).encode()
    elif split.holds_paths:
        sizes = [str(os.path.getsize(path)) for path in split.images]
        content = "\0".join([*ids, *sizes]).encode()
    else:
        content = np.ascontiguousarray(split.images).data
    if queries is not None:
        labels, ids = labels[queries], np.asarray(ids)[queries]
    of_images = {
        "dataset": settings.dataset,
        "split": settings.split,
        "classes": hashlib.sha256("\0".join(split.names).encode()).hexdigest(),
        "content": hashlib.sha256(content).hexdigest(),
    }
    if getattr(settings, "gallery", None):
        of_images["gallery"] = images.gallery.collection.list
    path = queries_path(pathlib.Path(settings.out))
    tfdml.evaluation.save_queries(path, per_query, labels, images=of_images, ids=ids)
