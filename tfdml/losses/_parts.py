"""Losses within losses, as users name them."""

from tfdml.checks import check, check_type
from tfdml.losses.base import MetricLoss


def built(get, **received):
    """Returns the loss given as a `MetricLoss`, a name, or a dict of a name and options."""
    ((argument, part),) = received.items()
    if isinstance(part, MetricLoss):
        return part
    check_type(
        isinstance(part, (str, dict)),
        f"`{argument}` must be a MetricLoss, a name, or a dict of a name and options",
        **received,
    )
    options = {"name": part} if isinstance(part, str) else dict(part)
    check(
        isinstance(options.get("name"), str) and all(isinstance(key, str) for key in options),
        f"`{argument}` must have a name among its options",
        **received,
    )
    name = options.pop("name")
    return get(name, **options)
