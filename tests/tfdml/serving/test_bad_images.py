import pytest
import tensorflow as tf

from tfdml.serving.bad_images import reason_for_first
from tfdml.serving.reading import reject_unreadable


@tf.function
def reject(problems):
    with tf.control_dependencies([reject_unreadable(problems, "image_bytes_b")]):
        return tf.size(problems)


@pytest.mark.parametrize("problem", ["is empty", "is not a JPEG, PNG, GIF, BMP or WebP"])
def test_what_a_refusal_says_of_the_first_image_is_found(problem):
    with pytest.raises(tf.errors.InvalidArgumentError) as rejected:
        reject(tf.constant([problem, ""]))
    assert reason_for_first(str(rejected.value), "image_bytes_b") == f"it {problem}"
    assert reason_for_first(str(rejected.value), "image_bytes_a") is None
    assert reason_for_first(str(rejected.value), "bytes_b") is None
    with pytest.raises(tf.errors.InvalidArgumentError) as rejected:
        reject(tf.constant(["", problem]))
    assert reason_for_first(str(rejected.value), "image_bytes_b") is None
