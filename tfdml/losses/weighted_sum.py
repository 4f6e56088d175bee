import dataclasses

import keras

from tfdml.checks import check, check_positive, check_type
from tfdml.losses._wrapped import WrappedLoss
from tfdml.losses.base import MetricLoss, register
from tfdml.losses.proxies import ProxyLoss
from tfdml.losses.registry import resolve


@register("weighted_sum")
class WeightedSum(WrappedLoss):
    """The weighted sum of several losses on the same embeddings.

        loss = Σ_p weight[p] * p over the parts p

    Args:
        parts: {name: weight > 0}, such as `{"arcface": 1.0, "triplet": 0.5}`. In place of the
            weight may be a pair of it and options, `(0.5, {"margin": 0.2})`, or and a loss; in
            place of the pair its second, for weight 1. With the option `"name"` of a loss the key
            may be any.

    Attributes:
        parts: The losses.
        layers: Those of all parts. The proxies of the first part over proxies have the name
            `class_proxies`, those of the second `class_proxies_1`.

    Call:
        As `MetricLoss`; each part gets unit rows if it does so alone.

    Raises:
        TypeError: If a part is not a loss.
        ValueError: If the parts have different levels.

    Source:
        Common practice, such as that of Luo et al. Bag of tricks for deep person re-identification.
        CVPRW 2019: softmax and triplet.

    Example:
        >>> loss = WeightedSum({"contrastive": 1.0, "triplet": (0.5, {"margin": 0.2})})
        >>> rows = np.array([[1., 0.], [0., 1.], [1., 0.]])
        >>> print(round(float(loss(np.array([0, 0, 1]), rows)), 4))
        2.1
    """

    def __init__(self, parts, *, name="weighted_sum"):
        are_parts = isinstance(parts, dict) and parts
        check_type(are_parts, "`parts` must be a dict of losses", parts=parts)
        weighted = {key: _weighted(key, given) for key, given in parts.items()}
        super().__init__(*(loss for _, loss in weighted.values()), name=name)
        self._weights = {key: weight for key, (weight, _) in weighted.items()}
        self.normalize = all(part.normalize for part in self.parts)
        over_proxies = [leaf for leaf in self.leaves if isinstance(leaf, ProxyLoss)]
        for number, leaf in enumerate(over_proxies[1:], 1):
            leaf.rename_layer(f"{ProxyLoss.layer_name}_{number}")
        levels = {part.levels for part in self.parts}
        check(len(levels) == 1, "all parts must have the same levels", levels=sorted(levels))

    @property
    def traits(self):
        traits = [part.traits for part in self.parts]
        return dataclasses.replace(
            super().traits,
            compares_rows=any(each.compares_rows for each in traits),
            takes_label_sets=all(each.takes_label_sets for each in traits),
            takes_sample_weight=all(each.takes_sample_weight for each in traits),
        )

    def call(self, batch):
        total = 0.0
        for weight, part in zip(self._weights.values(), self.parts, strict=True):
            total = total + weight * part.call(part.scaled(batch))
        return total

    def option(self, name):
        if name != "parts":
            return super().option(name)
        parts = map(keras.saving.serialize_keras_object, self.parts)
        pairs = zip(self._weights.values(), parts, strict=True)
        return dict(zip(self._weights, map(list, pairs), strict=True))


def _weighted(key, given):
    """The weight and the loss of a part."""
    alone = isinstance(given, (dict, MetricLoss))
    pair = (1.0, given) if alone else given if isinstance(given, (list, tuple)) else (given, {})
    expectation = f"`parts[{key!r}]` must be a weight, or a pair of it and a loss"
    check(len(pair) == 2, expectation, pair=pair)
    weight, part = pair
    [weight] = check_positive(**{f"parts[{key!r}]": weight})
    if isinstance(part, dict) and "class_name" not in part:
        part = {"name": key, **part}
    return weight, resolve(**{f"parts[{key!r}]": part})
