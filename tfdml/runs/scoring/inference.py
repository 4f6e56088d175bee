"""The embeddings that a model computes."""

import numpy as np

import pipelines
from pipelines.loading import named
from pipelines.transforms import views
from tfdml import evaluation
from tfdml.checks import check_fits
from tfdml.quiet import progress
from tfdml.runs.scoring.embedded import levels_of
from tfdml.serving.bounded_batches import InPieces, fitting_batch_size


def embed(options, model, split, signature=None):
    """(n, width) floats of all levels, by a signature of the model or of other weights of it."""
    levels, _, dim = levels_of(options, model)
    signature, crops = signature or model.signatures["embed_images"], options.crops
    image_size = tuple(signature.structured_input_signature[1]["images"].shape[1:])
    width = min(levels * dim, signature.structured_outputs["embedding"].shape[1])
    batch_size = options.batch_size or fitting_batch_size(image_size, width)
    network = InPieces(lambda images: signature(images=images)["embedding"], batch_size)
    kind = {"preprocessing": model.preprocessing}
    read_size = kind["preprocessing"].size_of_views(image_size) if crops > 1 else image_size
    rows = len(split.labels)
    check_fits(4 * rows * width, "the embeddings", images=rows, embedding_dim=width)
    batches = pipelines.evaluation_batches(split, read_size, batch_size, **kind)
    embeddings, end = np.empty((rows, width), np.float32), 0
    with named(split):
        for images in progress("Embedding", batches, unit="batch"):
            shown = views(images, image_size, crops=crops, mirror=options.mirror)
            found = np.stack([network(view)[:, :width] for view in shown])
            start, end = end, end + len(images)
            whole = len(shown) == 1
            embeddings[start:end] = found[0] if whole else evaluation.average_views(found, levels)
    return embeddings
