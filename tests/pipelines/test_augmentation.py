import re

import numpy as np
import pytest

from pipelines import Augmentation

NUMBERS = ["crop", "aspect", "symmetries", "rotation", "zoom", "shift", "colour"]


def test_changes_nothing_by_default():
    assert not Augmentation().crops
    assert not Augmentation().warps
    assert not Augmentation().flip


@pytest.mark.parametrize("options", [{"rotation": 1.0}, {"zoom": 0.1}, {"shift": 0.1}])
def test_each_geometric_option_warps(options):
    assert Augmentation(**options).warps


@pytest.mark.parametrize(
    ("name", "value", "range_"),
    [
        ("crop", 0.0, "> 0 and <= 1"),
        ("crop", 1.5, "> 0 and <= 1"),
        ("aspect", 0.5, ">= 1 and finite"),
        ("aspect", float("inf"), ">= 1 and finite"),
        ("flip", 3, "true or false"),
        ("symmetries", 2, "1, 4 or 8"),
        ("rotation", -1.0, ">= 0 and <= 180 degrees"),
        ("zoom", 1.0, ">= 0 and < 1"),
        ("shift", float("nan"), ">= 0 and < 1"),
        ("colour", 0.6, ">= 0 and <= 0.5"),
    ],
)
def test_rejects_values_out_of_range(name, value, range_):
    with pytest.raises(ValueError, match=f"`{name}` must be {range_}. Received: {name}={value}"):
        Augmentation(**{name: value})


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["abc", None, True, [1.0]])
def test_rejects_what_is_no_number(name, value):
    message = re.escape(f"`{name}` must be a number. Received: {name}={value!r}")
    with pytest.raises(TypeError, match=message):
        Augmentation(**{name: value})


def test_takes_numpy_scalars():
    assert Augmentation(rotation=np.float32(10), zoom=np.float64(0.5)).warps


def test_changed_replaces_some_fields():
    changed = Augmentation(rotation=10.0, zoom=0.1).changed(rotation=0.0)
    assert changed == Augmentation(zoom=0.1)


def test_changed_rejects_a_misspelt_field():
    with pytest.raises(ValueError, match=r"no option 'rotatoin'. Did you mean 'rotation'?"):
        Augmentation().changed(rotatoin=3)
