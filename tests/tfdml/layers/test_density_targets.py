import keras
import numpy as np

from tfdml.layers import DensityTargets


def test_gives_the_target_of_each_class():
    layer = DensityTargets(3, start=0.25)
    assert keras.ops.convert_to_numpy(layer(np.array([2, 0]))).tolist() == [0.25, 0.25]
    layer.targets.assign([1.0, 2.0, 3.0])
    found = keras.ops.convert_to_numpy(layer(np.array([2, 0, 3, -1])))
    np.testing.assert_array_equal(found, [3, 1, np.nan, np.nan])
