"""Extracts the reason for an image from a batch error of `reading.reject_unreadable`."""

import re


def reason_for_first(message, name):
    """The reason that an error gives for the first image of an input; None if it gives none.

    Args:
        message: Text of the error.
        name: Name of the input, such as `image_bytes`.

    Example:
        >>> reason_for_first("assertion failed: [image_bytes[0] is empty]", "image_bytes")
        'it is empty'
        >>> reason_for_first("Invalid PNG data, size 12", "image_bytes")
    """
    reason = re.search(rf"\b{name}\[0\] ([^\]]+)", message)
    return f"it {reason[1]}" if reason else None
