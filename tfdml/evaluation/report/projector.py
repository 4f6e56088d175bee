"""Files for TensorBoard's embedding projector, which shows embeddings in a browser."""

import math
import pathlib

import numpy as np
from google.protobuf import text_format
from PIL import ImageOps
from tensorboard.plugins.projector import ProjectorConfig

from tfdml.checks import check, check_type
from tfdml.evaluation import inputs
from tfdml.evaluation.report.thumbnails import picture_at, sheet_of

CONFIG = "projector_config.pbtxt"  # the name that TensorBoard looks for
_TENSORS, _METADATA, _SPRITE = "tensors.tsv", "metadata.tsv", "sprite.png"
_SPRITE_SIDE = 8192  # pixels, the most that browsers show as one texture


def write_projector(
    folder, embeddings, labels, *, class_names=None, image_names=None, picture_of=None, side=64
):
    """Writes the files that `tensorboard --logdir FOLDER` shows in its projector.

    `sprite.png` holds all pictures in one square of at most 8192 x 8192 pixels: 33 x 33 each for
    60,502. Files of an earlier call are replaced.

    Args:
        folder: Path of the folder; created if missing.
        embeddings, labels: As for `class_means`; finite also as float32.
        class_names: {class id: name}; missing classes are named by their ids. Default: no names.
        image_names: (n,) texts, such as paths, in a column `image`.
        picture_of: Callable of a row number that returns its picture, (height, width) or
            (height, width, 1 or 3) uint8. Default: no pictures.
        side: Largest side of a picture in pixels; from 1 to 8192.

    Returns:
        The path of the configuration, `projector_config.pbtxt` in the folder.
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    with np.errstate(over="ignore"):
        rows = embeddings.astype(np.float32)
    largest = float(np.abs(embeddings).max())
    check(np.isfinite(rows).all(), "`embeddings` must be finite as float32", largest=largest)
    valid, kind = isinstance(class_names, dict | None), type(class_names).__name__
    check_type(valid, "`class_names` must be a dict of names by class id", class_names=kind)
    inputs.check_callable_or_none(picture_of=picture_of)
    names = len(labels) if image_names is None else len(image_names)
    received = {"image_names": names, "rows": len(labels)}
    check(names == len(labels), "`image_names` must have one name per row", **received)
    side = inputs.whole_number(side, "side", at_least=1, below=_SPRITE_SIDE + 1)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # Removed first, so that TensorBoard never shows a mix of files from this and an earlier call.
    (folder / CONFIG).unlink(missing_ok=True)
    (folder / _SPRITE).unlink(missing_ok=True)
    np.savetxt(folder / _TENSORS, rows, fmt="%.9g", delimiter="\t")
    columns = {"label": labels.tolist()}
    if class_names is not None:
        columns["class_name"] = [class_names.get(label, label) for label in columns["label"]]
    if image_names is not None:
        columns["image"] = image_names
    lines = [tuple(columns)] if len(columns) > 1 else []  # a header of several columns
    lines.extend(zip(*columns.values(), strict=True))
    fields = ("\t".join(" ".join(str(cell).split()) for cell in line) + "\n" for line in lines)
    (folder / _METADATA).write_text("".join(fields), encoding="utf-8", newline="\n")
    config = ProjectorConfig()
    embedding = config.embeddings.add(tensor_name="embeddings", tensor_shape=rows.shape)
    embedding.tensor_path, embedding.metadata_path = _TENSORS, _METADATA
    if picture_of is not None:
        columns = math.ceil(math.sqrt(len(rows)))
        side = min(side, _SPRITE_SIDE // columns)
        pictures = (picture_at(picture_of, row, side).convert("RGB") for row in range(len(rows)))
        squares = (ImageOps.pad(picture, (side, side)) for picture in pictures)
        sheet_of(squares, (side, side), columns, columns, "RGB").save(folder / _SPRITE)
        embedding.sprite.image_path = _SPRITE
        embedding.sprite.single_image_dim.extend([side, side])
    (folder / CONFIG).write_text(text_format.MessageToString(config), encoding="utf-8")
    return folder / CONFIG
