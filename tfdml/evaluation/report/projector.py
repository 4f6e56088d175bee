"""Files for TensorBoard's embedding projector, which shows embeddings in a browser."""

import math
import pathlib

import numpy as np
from PIL import Image, ImageOps

from tfdml.checks import check, check_type
from tfdml.evaluation import inputs
from tfdml.evaluation.report.pictures import check_image_names, picture_at

CONFIG = "projector_config.pbtxt"  # the name that TensorBoard looks for
_TENSORS, _METADATA, _SPRITE = "tensors.tsv", "metadata.tsv", "sprite.png"
_SPRITE_SIDE = 8192  # pixels, the most that browsers show as one texture


def write_projector(
    folder, embeddings, labels, *, class_names=None, image_names=None, picture_of=None, side=64
):
    """Writes the files that `tensorboard --logdir FOLDER` shows in its projector.

    `tensors.tsv` holds the rows as float32, to the last digit; `metadata.tsv` the class id of each,
    with the names of its class and image if given; `sprite.png` the pictures, if any, in one square
    of at most 8192 x 8192 pixels, each with `side` pixels or as many as the square has room for: 33
    for 60,502 pictures. Files of an earlier call are replaced. The projector of TensorBoard 2.21
    shows the first 100,000 rows.

    Args:
        folder: Path of the folder; created if missing.
        embeddings: (n, dim) floats, finite, also as float32; taken as given: not normalised.
        labels: (n,) or (n, 1) integers of any size, one class id per row.
        class_names: {class id: name}; missing classes are named by their ids. White space in a name
            becomes single spaces, as tabs and newlines end a field. Default: only the ids.
        image_names: (n,) texts, such as paths, that name the rows, in a column `image`; white space
            as in class names.
        picture_of: Callable of a row number that returns its picture, (height, width) or
            (height, width, 1 or 3) uint8; scaled to fit a square and padded with black. Default:
            points, no pictures.
        side: Largest side of a picture in pixels; from 1 to 8192.

    Returns:
        The path of the configuration, `projector_config.pbtxt` in the folder.

    Raises:
        TypeError: If labels are not integers, embeddings not floats, `class_names` not a dict,
            `picture_of` not callable or a picture not uint8.
        ValueError: If shapes disagree, an input is empty or not finite, `side` is out of range or
            a picture has another shape.
    """
    embeddings, labels = inputs.embeddings_and_labels(embeddings, labels)
    with np.errstate(over="ignore"):
        rows = embeddings.astype(np.float32)
    largest = float(np.abs(embeddings).max())
    check(np.isfinite(rows).all(), "`embeddings` must be finite as float32", largest=largest)
    valid = class_names is None or isinstance(class_names, dict)
    expectation = "`class_names` must be a dict of names by class id"
    check_type(valid, expectation, class_names=type(class_names).__name__)
    inputs.check_callable_or_none(picture_of=picture_of)
    check_image_names(image_names, len(labels))
    side = inputs.whole_number(side, "side", at_least=1, below=_SPRITE_SIDE + 1)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # Removed first, so that TensorBoard never shows a mix of files from this and an earlier call.
    (folder / CONFIG).unlink(missing_ok=True)
    (folder / _SPRITE).unlink(missing_ok=True)
    np.savetxt(folder / _TENSORS, rows, fmt="%.9g", delimiter="\t")
    _write_metadata(folder / _METADATA, labels, class_names, image_names)
    if picture_of is None:
        side = None
    else:
        columns = math.ceil(math.sqrt(len(rows)))
        side = min(side, _SPRITE_SIDE // columns)
        _sprite(picture_of, len(rows), columns, side).save(folder / _SPRITE)
    (folder / CONFIG).write_text(_config(rows.shape, side), encoding="utf-8")
    return folder / CONFIG


def _write_metadata(path, labels, class_names, image_names):
    """Writes one line per row; a header only if there are several columns."""
    ids = labels.tolist()
    columns = {"label": ids}
    if class_names is not None:
        columns["class_name"] = [class_names.get(label, label) for label in ids]
    if image_names is not None:
        columns["image"] = image_names
    rows = zip(*columns.values(), strict=True)
    lines = ["\t".join(" ".join(str(field).split()) for field in row) for row in rows]
    if len(columns) > 1:
        lines.insert(0, "\t".join(columns))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


def _sprite(picture_of, count, columns, side):
    """All pictures in one square image, line by line."""
    sprite = Image.new("RGB", (columns * side, columns * side))
    for row in range(count):
        picture = ImageOps.pad(picture_at(picture_of, row).convert("RGB"), (side, side))
        sprite.paste(picture, (row % columns * side, row // columns * side))
    return sprite


def _config(shape, side):
    """The configuration of the projector, with paths relative to its folder."""
    from google.protobuf import text_format
    from tensorboard.plugins.projector import ProjectorConfig

    config = ProjectorConfig()
    paths = {"tensor_path": _TENSORS, "metadata_path": _METADATA}
    embedding = config.embeddings.add(tensor_name="embeddings", tensor_shape=shape, **paths)
    if side is not None:
        embedding.sprite.image_path = _SPRITE
        embedding.sprite.single_image_dim.extend([side, side])
    return text_format.MessageToString(config)
