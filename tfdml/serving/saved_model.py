import pathlib

from tfdml.serving.options import TOP, ExportOptions
from tfdml.serving.signatures import ServedModel
from tfdml.serving.versions import check_new


def export_model(
    embedder,
    path,
    read_image,
    loss=None,
    assets=None,
    *,
    options=None,
    classes=None,
    gallery=None,
    top=TOP,
    metadata=None,
):
    """Writes a SavedModel that TF Serving loads unchanged.

    Signatures, with rows of a against the same rows of b unless said otherwise:
        serving_default: `image_bytes` (n,) encoded images -> `embedding` (n, dim) float32.
        embed_images: `images` (n, height, width, channels) float32 in [0, 255] -> `embedding`.
        read_images: `image_bytes` (n,) -> `images`, what `embed_images` takes.
        similarity: `image_bytes_a` (n,) and `image_bytes_b` (n,) -> `similarity` (n,) float32, the
            score that the loss learned, or else the cosine.
        score_pairs: `embeddings_a` (n, dim) and `embeddings_b` (n, dim) -> `similarity` (n,), the
            learned score. Only where there is one.
        score_matrix: `embeddings_a` (n, dim) and `embeddings_b` (m, dim) -> `similarity` (n, m),
            the learned score of all rows of a against all of b. Only where there is one.
        classify: `image_bytes` (n,) -> `classes` (n, top), the names of those whose means lie
            nearest, nearest first, and `distances` (n, top) float32, Euclidean. Only with
            `classes`.
        neighbours: `image_bytes` (n,) -> `ids`, `classes` and `distances` (n, top) of the images of
            the gallery that lie nearest, nearest first. Only with `gallery`.

    The images of a batch may differ in format and size. One that cannot be read fails its request
    by an error that names its row and says why; with `on_bad_image` of `nan` its numbers are NaN,
    its texts empty, and every signature that takes `image_bytes` has an output `valid` (n,) of
    booleans. What counts as damaged says `pipelines.decoding.decode`, where `read_image` is of it.

    The folder appears whole or not at all, so a server that watches it never sees half a version.
    Its `assets.extra` holds `metadata.json`, of which `tfdml.serving.metadata` says what it tells,
    and a warm-up request for each signature, so that the first one of a user is as fast as others.

    Args:
        embedder: A functional `keras.Model` from images to embeddings.
        path: The version's folder, such as `saved_models/NAME/1`; must not exist.
        read_image: The preprocessing of training: from a scalar string tensor of encoded bytes to
            one (height, width, channels) float32 image in [0, 255], in TensorFlow operations.
        loss: The loss that the embedder was trained with. The similarity that it learned, in its
            `layer`, is served without dropout.
        assets: File name -> text or bytes, written to the version's `assets.extra`.
        options: `tfdml.serving.ExportOptions`; the usual ones if None.
        classes: `tfdml.serving.Gallery` of the means of classes, as of `class_means`, by embeddings
            of the same model.
        gallery: `tfdml.serving.Gallery` of at most 100,000 images.
        top: How many classes or images to tell; all where there are fewer.
        metadata: {name: value} of the training, such as `recipe` and `scores`; `metadata_of` lists
            the names.

    Returns:
        The path of the version.

    Raises:
        FileExistsError: If the version exists.
        ValueError: If a gallery is not of this model's embeddings, or `top` not above 0.
    """
    check_new(pathlib.Path(path))
    served = ServedModel(embedder, read_image, loss, options=options or ExportOptions())
    if classes is not None:
        served.add_classes(classes, top=top)
    if gallery is not None:
        served.add_gallery(gallery, top=top)
    return served.write(path, assets=assets, metadata=metadata)
