"""What the refusal of a batch says of its images, as `reading.refuse_unreadable` words it."""

import re


def told_of_first(message, name):
    """What an error says of the first image of an input; None where it says nothing of it.

    Args:
        message: Text of the error.
        name: Name of the input, such as `image_bytes`.

    Example:
        >>> told_of_first("assertion failed: [image_bytes[0] is empty]", "image_bytes")
        'it is empty'
        >>> told_of_first("Invalid PNG data, size 12", "image_bytes")
    """
    told = re.search(rf"\b{name}\[0\] ([^\]]+)", message)
    return f"it {told[1]}" if told else None
