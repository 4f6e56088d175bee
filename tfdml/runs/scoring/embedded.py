"""The embeddings that are scored: of the model, or of a file made by anything."""

import hashlib
import json
from typing import Any, NamedTuple

from tfdml import evaluation
from tfdml.checks import check
from tfdml.runs import scoring
from tfdml.runs.scoring.scored_images import Images, training_split
from tfdml.runs.stored import Stored, write_embeddings
from tfdml.serving.exported import fingerprint


class Embedded(NamedTuple):
    """Embeddings of images, as a task scores them."""

    embeddings: Any  # (n, dim) floats, as they are ranked
    images: Images
    model: Any  # `ScoredModel`
    levels: Any  # (n, number * dim) floats, as the model gives them
    number: int = 1  # of levels
    projection: Any = None  # kernel and bias of `pca`

    @property
    def labels(self):
        return self.images.labels

    def similarity(self, options, pairs=None):
        """The learned similarity of all rows to all rows, if `rank_by` asks for it; else None."""
        by_distance = options.rank_by == "distance"
        return None if by_distance else self.model.similarity("score_matrix", pairs)


def levels_of(options, model):
    """How many levels a model has, how many are scored, and the numbers of each, checked."""
    weights, width = options.level_weights, model.width
    most = len(weights or [1])
    if "embedding_dim" in model.recipe:
        # An export of the first numbers is shorter.
        most = max(1, width // (model.recipe["embedding_dim"] or width))
    levels = options.levels or most
    expectation = "`levels` must not exceed those of the model"
    check(levels <= most, expectation, levels=levels, model_levels=most)
    fit = weights is None or (len(weights) == levels > 1 and width % levels == 0)
    expectation = "`level_weights` must have one number for each level of a model with several"
    check(fit, expectation, level_weights=weights, levels=levels)
    dim = width // most
    fit = options.dims is None or (levels == 1 and options.dims <= dim)
    expectation = "`dims` must not exceed the embedding of a model of one level"
    check(fit, expectation, dims=options.dims, embedding_dim=dim, levels=levels)
    return most, levels, dim


def embed_images(options, model, images):
    """The `Embedded` images: those of the file `embeddings`, or embedded now and written there."""
    rows, path = model.stored and model.stored.embeddings, options.embeddings
    if path and model.version:
        split, boxes = images.split, images.split.boxes
        boxes = None if boxes is None else hashlib.sha256(boxes.tobytes()).hexdigest()
        origin = {"model": fingerprint(model.version), **images.identity(options), "boxes": boxes}
        origin |= {"crops": options.crops, "mirror": options.mirror}
        known = json.loads(str((model.stored and model.stored.origin) or "{}"))
        differing = [name for name in origin if known.get(name) != origin[name]]
        expected = f"{path} must have the embeddings of this model, images and options; name "
        expected += "another file, or delete it"
        check(not (model.stored and differing), expected, differing=differing)
    if rows is None:
        rows = scoring.embed(options, model, images.split)
        if path:
            labels = [*map(images.class_names.get, images.labels.tolist())]
            ids = split.images if split.holds_paths else images.ids(options)
            write_embeddings(path, Stored(rows, labels, images.queries, ids, json.dumps(origin)))
            print(f"Embeddings: {path}")
    embedded = joined(options, model, images, rows)
    if options.pca is None:
        return embedded
    training = training_split(options, model, images.dataset)
    rows = joined(options, model, training, scoring.embed(options, model, training)).embeddings
    projection = evaluation.fit_pca(rows, options.pca, whiten=options.whiten)
    projected = evaluation.project(embedded.embeddings, *projection)
    return embedded._replace(embeddings=projected, projection=projection)


def joined(options, model, images, rows):
    """The `Embedded` of what a model gives: all levels or a part of them, weighed."""
    _, levels, dim = levels_of(options, model)
    scored = embeddings = rows[:, : levels * dim]
    if options.dims is not None:
        embeddings = evaluation.first_dims(scored, options.dims)
    elif options.level_weights is not None:
        embeddings = evaluation.weigh_levels(scored, options.level_weights)
    return Embedded(embeddings, images, model, scored, levels)
