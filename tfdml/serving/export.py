import os
import pathlib
import shutil
import tempfile

import keras
import tensorflow as tf


def export(embedder, path, read_image, assets=None):
    """Writes a SavedModel that TF Serving loads unchanged.

    Signatures:
        serving_default: `image_bytes` (n,) encoded images -> `embedding` (n, dim) float32.
        embed_images: `images` (n, height, width, channels) float32 in [0, 255] -> `embedding`.

    The folder appears whole or not at all, so a server that watches it never sees half a version.

    Args:
        embedder: A functional `keras.Model` from images to embeddings.
        path: The version's folder, such as `saved_models/NAME/1`; must not exist.
        read_image: The preprocessing of training: from a scalar string tensor of encoded bytes to
            one (height, width, channels) float32 image in [0, 255], in TensorFlow operations.
        assets: File name -> text, written to the version's `assets.extra`.

    Returns:
        The path of the version.

    Raises:
        FileExistsError: If the version exists.
    """
    path = pathlib.Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists. A version is never overwritten: choose a new one.")
    image_shape = embedder.input_shape[1:]
    image = tf.TensorSpec(image_shape, tf.float32)

    def embed_images(images):
        return {"embedding": embedder(images, training=False)}

    def embed_bytes(image_bytes):
        return embed_images(tf.map_fn(read_image, image_bytes, fn_output_signature=image))

    archive = keras.export.ExportArchive()
    archive.track(embedder)
    archive.add_endpoint(
        "serving_default", embed_bytes, [tf.TensorSpec([None], tf.string, name="image_bytes")]
    )
    archive.add_endpoint(
        "embed_images", embed_images, [tf.TensorSpec([None, *image_shape], name="images")]
    )
    parent_is_new = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".unfinished-{path.name}-"
    for killed in path.parent.glob(f"{prefix}*"):
        shutil.rmtree(killed)
    unfinished = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=path.parent))
    try:
        archive.write_out(str(unfinished), verbose=False)
        (unfinished / "assets.extra").mkdir(exist_ok=True)
        for name, text in (assets or {}).items():
            (unfinished / "assets.extra" / name).write_text(text)
        unfinished.chmod(0o755)
        os.rename(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        if parent_is_new and not any(path.parent.iterdir()):
            path.parent.rmdir()
        raise
    return path
