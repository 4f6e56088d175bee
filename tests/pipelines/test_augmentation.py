import numpy as np
import pytest

from pipelines import Augmentation


def test_says_whether_it_crops_and_warps():
    assert not any([Augmentation().crops, Augmentation().warps, Augmentation().flip])
    assert Augmentation(crop=np.float32(0.5)).crops
    for name in ("rotation", "zoom", "shift"):
        assert Augmentation(**{name: np.float64(0.1)}).warps


def test_changed_replaces_some_fields():
    changed = Augmentation(rotation=10.0, zoom=0.1).changed(rotation=0.0)
    assert changed == Augmentation(zoom=0.1)
    with pytest.raises(ValueError, match=r"no option 'rotatoin'. Did you mean 'rotation'?"):
        Augmentation().changed(rotatoin=3)


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
