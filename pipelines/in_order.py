"""Images of a split in order, for evaluation."""

import tensorflow as tf

from pipelines.images import prepare
from pipelines.loading import boxes_of, checked, part_of, with_contents
from pipelines.parallel import on_all_cores
from tfdml.checks import check_bool, check_integer

_RECORDS = 64  # read at once in evaluation


@tf.autograph.experimental.do_not_convert
def evaluation_batches(
    split, image_size=None, batch_size=256, *, preprocessing=None, with_labels=False
):
    """All images of a split in order, cut to their boxes and resized, without augmentation.

    Of a split of `inputs`, its rows as they are.

    Args:
        split: `Split`.
        image_size: (height, width, channels), for paths 1 or 3 channels; that of the images if
            None; required for paths.
        batch_size: Images in a batch; the last may have fewer.
        preprocessing: `Preprocessing`, with a centre crop; None to only resize.
        with_labels: Whether to yield labels too, as for `validation_data` of `fit`.

    Returns:
        `tf.data.Dataset` of (batch, height, width, channels) float32 in [0, 255]; with labels, of
        `(images, labels)`, the labels (batch,) or (batch, num_labels) int64.

    Raises:
        TypeError: If `split` is not a `Split`, `batch_size` not an integer or `preprocessing` not a
            `Preprocessing`.
        ValueError: If `image_size` does not suit these images or is missing for paths,
            `batch_size` is below 1 or the preprocessing cannot make images of this size.
    """
    check_integer(1, batch_size=batch_size)
    _, image_size, _, preprocessing = checked(split, image_size, None, preprocessing)
    check_bool(with_labels=with_labels)

    def load(image, box, label):
        channels = image_size[2]  # pyright: ignore[reportOptionalSubscript], images have a size
        image = prepare(part_of(split, image, box, channels), image_size, preprocessing)
        return (image, label) if with_labels else image

    if split.inputs is not None:
        with tf.device("CPU:0"):  # else a GPU would hold all rows
            rows = tf.data.Dataset.from_tensor_slices((split.inputs, split.labels))
        rows = rows if with_labels else rows.map(lambda inputs, _: inputs)
        return rows.batch(batch_size).prefetch(tf.data.AUTOTUNE)
    with tf.device("CPU:0"):  # else a GPU would hold all pixels
        images = tf.data.Dataset.from_tensor_slices((split.images, boxes_of(split), split.labels))
    if split.holds_records:
        images = images.batch(_RECORDS).map(with_contents, tf.data.AUTOTUNE).unbatch()
        images = images.apply(tf.data.experimental.assert_cardinality(len(split.labels)))
    images = images.map(load, num_parallel_calls=tf.data.AUTOTUNE)
    return on_all_cores(images.batch(batch_size).prefetch(tf.data.AUTOTUNE))
