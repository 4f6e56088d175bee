import pathlib
import warnings

from tfdml.checks import check, check_type
from tfdml.decoding import decode, resize
from tfdml.serving.options import TOP
from tfdml.serving.signatures import ServedModel
from tfdml.serving.versions import check_new


def export_model(
    model,
    path,
    read_image=None,
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

    Signatures; those of pairs compare row i of a with row i of b unless stated otherwise:
        serving_default: `image_bytes` (n,) encoded images -> `embedding` (n, dim) float32.
        embed_images: `images` (n, height, width, channels) float32 in [0, 255] -> `embedding`.
        read_images: `image_bytes` (n,) -> `images`, what `embed_images` takes.
        similarity: `image_bytes_a` (n,) and `image_bytes_b` (n,) -> `similarity` (n,) float32, the
            score that the loss learned, otherwise the cosine.
        score_pairs: `embeddings_a` (n, dim) and `embeddings_b` (n, dim) -> `similarity` (n,), the
            learned score. Only if there is one.
        score_matrix: `embeddings_a` (n, dim) and `embeddings_b` (m, dim) -> `similarity` (n, m),
            the learned score of all rows of a against all of b. Only if there is one.
        classify: `image_bytes` (n,) -> `classes` (n, top), the names of the classes with the
            nearest means, nearest first, and `distances` (n, top) float32, Euclidean. Only with
            `classes`.
        neighbours: `image_bytes` (n,) -> `ids`, `classes` and `distances` (n, top) of the nearest
            images of the gallery, nearest first. Only with `gallery`.

    The images of a batch may differ in format and size. An unreadable image fails its request with
    an error that gives its row and the reason. With `on_bad_image="nan"` its numbers are NaN, its
    texts empty, and every signature that takes `image_bytes` has an output `valid`, (n,) booleans.
    `tfdml.decoding.decode` documents which images the default `read_image` rejects.

    The folder appears whole or not at all, so a server that watches it never sees half a version.
    Its `assets.extra` holds `metadata.json`, described in `tfdml.serving.metadata`, and a warm-up
    request for each signature, so that a user's first request is as fast as later ones.

    Args:
        model: A `tfdml.EmbeddingModel`, or its embedder: a functional or sequential `keras.Model`
            from images to embeddings. Embeddings are float32 under any policy.
        path: The version's folder, such as `saved_models/NAME/1`; must not exist.
        read_image: The preprocessing of training: from a scalar string tensor of encoded bytes to
            one (height, width, channels) float32 image in [0, 255], in TensorFlow operations. If
            None, images are decoded as in `pipelines` and resized to the input of the model.
        loss: The loss that the embedder was trained with; that of an `EmbeddingModel` if None. Its
            learned similarity, if any, is served without dropout.
        assets: File name -> text or bytes, written to the version's `assets.extra`.
        options: `tfdml.serving.ExportOptions`; the defaults if None.
        classes: `tfdml.serving.Gallery` of class means, such as those of `class_means`, by
            embeddings of the same model.
        gallery: `tfdml.serving.Gallery` of at most 100,000 images.
        top: Number of classes or images to return; all if there are fewer.
        metadata: {name: value} of the training, such as `recipe` and `scores`; `metadata_of` lists
            the names.

    Returns:
        The path of the version.

    Raises:
        FileExistsError: If the version exists.
        TypeError: If `model` is not a `keras.Model`.
        ValueError: If `model` has no fixed image size, its output is not (batch, dim), a gallery
            has embeddings of another length, or `top` is below 1.

    Example:
        >>> import pathlib, tempfile
        >>> import tfdml
        >>> embedder = tfdml.models.build_embedder("small_cnn", 8, input_shape=(28, 28, 1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = export_model(embedder, pathlib.Path(folder) / "digits" / "1")
        ...     print((path / "saved_model.pb").is_file())
        True
    """
    from tfdml.models import EmbeddingModel

    check_new(pathlib.Path(path))
    if not pathlib.Path(path).name.isdigit():
        warnings.warn(
            f"TF Serving reads versions from folders that are numbers, not {str(path)!r}",
            stacklevel=2,
        )
    embedder = model
    if isinstance(model, EmbeddingModel):
        embedder, loss = model.embedder, loss or model.loss
    _check_embedder(embedder)
    if read_image is None:
        read_image = _reader(embedder.input_shape[1:])
    served = ServedModel(embedder, read_image, loss, options=options)
    if classes is not None:
        served.add_classes(classes, top=top)
    if gallery is not None:
        served.add_gallery(gallery, top=top)
    return served.write(path, assets=assets, metadata=metadata)


def _check_embedder(embedder):
    import keras

    expected = "`model` must be a tfdml.EmbeddingModel or a keras.Model"
    check_type(isinstance(embedder, keras.Model), expected, model=embedder)
    shapes = {name: getattr(embedder, name, None) for name in ("input_shape", "output_shape")}
    image, rows = (shape if isinstance(shape, tuple) else () for shape in shapes.values())
    fixed = len(image) == 4 and None not in image[1:] and image[3] in (1, 3)
    expected = "images of a fixed size: (batch, height, width, 1 or 3)"
    check(fixed, f"`model` must take one input, {expected}", **shapes)
    expected = "`model` must return one embedding per image: (batch, dim)"
    check(len(rows) == 2 and rows[1] is not None, expected, **shapes)


def _reader(image_size):
    """Returns a function from a scalar string to one float32 image of this size."""
    return lambda contents: resize(decode(contents, image_size[2]), image_size)
