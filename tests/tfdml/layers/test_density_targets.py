import keras
import numpy as np
import pytest

from tfdml.layers import DensityTargets


def test_gives_the_target_of_each_class():
    layer = DensityTargets(3, start=0.25)
    assert keras.ops.convert_to_numpy(layer(np.array([2, 0]))).tolist() == [0.25, 0.25]
    layer.targets.assign([1.0, 2.0, 3.0])
    found = keras.ops.convert_to_numpy(layer(np.array([2, 0, 3, -1])))
    np.testing.assert_array_equal(found, [3, 1, np.nan, np.nan])


def test_is_rebuilt_from_its_config():
    layer = DensityTargets(3, start=0.25, learning_rate_multiplier=10.0)
    restored = DensityTargets.from_config(layer.get_config())
    assert restored.get_config() == layer.get_config()
    assert (restored.num_classes, restored.start) == (3, 0.25)
    assert restored.learning_rate_multiplier == 10.0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_classes": 0}, ValueError, "`num_classes`.*Received: num_classes=0"),
        ({"num_classes": 1.5}, TypeError, "`num_classes`.*Received: num_classes=1.5"),
        ({"num_classes": 2, "start": np.inf}, ValueError, "`start`.*Received: start=inf"),
        ({"num_classes": 2, "start": "a"}, TypeError, "`start`.*Received: start='a'"),
        (
            {"num_classes": 2, "learning_rate_multiplier": -1},
            ValueError,
            "`learning_rate_multiplier`.*Received: learning_rate_multiplier=-1",
        ),
    ],
)
def test_rejects_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        DensityTargets(**arguments)
