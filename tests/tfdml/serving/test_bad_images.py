import pytest
import tensorflow as tf

from tfdml.serving.bad_images import reasons
from tfdml.serving.reading import reject_unreadable


@tf.function
def reject(problems):
    with tf.control_dependencies([reject_unreadable(problems, "image_bytes_b")]):
        return tf.size(problems)


@pytest.mark.parametrize("problem", ["is empty", "is not a JPEG, PNG, GIF, BMP or WebP"])
def test_what_a_refusal_says_of_the_images_is_found(problem):
    with pytest.raises(tf.errors.InvalidArgumentError) as rejected:
        reject(tf.constant([problem, "", problem]))
    message = str(rejected.value)
    assert reasons(message, "image_bytes_b") == dict.fromkeys((0, 2), f"it {problem}")
    assert reasons(message, "image_bytes_a") == reasons(message, "bytes_b") == {}
