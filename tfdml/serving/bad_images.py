"""Extracts the reasons for images from a batch error of `reading.reject_unreadable`."""

import re

# A model that returns NaN for unreadable images does not say why.
UNKNOWN = "it is damaged, too large, or of a kind that cannot be read"


def reasons(message, name):
    """The reasons that an error gives for images of an input, which are some of the unreadable.

    Args:
        message: Text of the error.
        name: Name of the input, such as `image_bytes`.

    Returns:
        {row: reason}.

    Example:
        >>> reasons("assertion failed: [images[0] is empty; images[7] is cut off]", "images")
        {0: 'it is empty', 7: 'it is cut off'}
        >>> reasons("Invalid PNG data, size 12", "images")
        {}
    """
    found = re.findall(rf"\b{name}\[(\d+)\] ([^\];]+)", message)
    return {int(row): f"it {reason}" for row, reason in found}


def reason_for_first(message, name):
    """The reason that an error gives for the first image of an input; None if it gives none."""
    return reasons(message, name).get(0)


def reason_for_only(message, name):
    """The reason in a TensorFlow error about the only image of a batch.

    >>> reason_for_only("assertion failed: [image_bytes[0] is empty]\\n\\t [[node]]", "image_bytes")
    'it is empty'
    >>> reason_for_only("Invalid PNG data, size 12\\n\\t [[node]]", "image_bytes")
    'Invalid PNG data, size 12'
    """
    sentence = message.partition("\n\t [[")[0].splitlines()[-1]
    return reason_for_first(sentence, name) or sentence
