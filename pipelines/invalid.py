"""What is an error, or with `skip_invalid` left out with a warning."""

from tfdml.quiet import warn


class Invalid(UserWarning):
    """Warning of what is an error without `skip_invalid`, listed in `items`."""

    def __init__(self, sentence, what, items):
        super().__init__(sentence)
        self.what, self.items = what, items


def leave_out(what, items, skip_invalid, error: type[Exception] = ValueError, where="", total=None):
    """Raises an error that lists items, or warns that they are left out; does nothing if none.

    `what` describes the items, `where` is appended to that in the error; of `total` looked at.
    """
    count = f"{len(items)} of {total}" if total else f"{len(items)}"
    sentence = f"{count} {what}: {first_five(items)}"
    if items and not skip_invalid:
        advice = "Repair them, or leave them out with skip_invalid=True, on the command line"
        raise error(f"{sentence}{where}. {advice} --skip_invalid true")
    if items:
        warn(Invalid(f"left out {sentence}", what, items))


def first_five(items):
    return ", ".join(items[:5]) + (", ..." if len(items) > 5 else "")
