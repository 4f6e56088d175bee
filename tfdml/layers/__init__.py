"""Keras layers of metric learning."""

from tfdml.layers.mirror_average import MirrorAverage
from tfdml.layers.pddm import PDDM
from tfdml.layers.unit_length import UnitLength

__all__ = ["PDDM", "MirrorAverage", "UnitLength"]
