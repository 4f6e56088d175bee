"""Extracts the reasons for images from a batch error of `reading.reject_unreadable`."""

import re

# A model that returns NaN for unreadable images does not say why.
UNKNOWN = "it is damaged, too large, or of a kind that cannot be read"


def reasons(message, name):
    """{row: reason} that an error gives for images of an input; it may name only some.

    >>> reasons("assertion failed: [images[0] is empty; images[7] is cut off]", "images")
    {0: 'it is empty', 7: 'it is cut off'}
    >>> reasons("Invalid PNG data, size 12", "images")
    {}
    """
    found = re.findall(rf"\b{name}\[(\d+)\] ([^\];]+)", message)
    return {int(row): f"it {reason}" for row, reason in found}
