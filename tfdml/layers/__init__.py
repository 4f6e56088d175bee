"""Keras layers of metric learning."""

from tfdml.layers.unit_length import UnitLength

__all__ = ["UnitLength"]
