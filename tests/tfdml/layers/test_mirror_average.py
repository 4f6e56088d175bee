import keras
import numpy as np

from tfdml.layers import MirrorAverage


def test_an_image_and_its_mirror_image_are_alike_but_in_training(rng):
    images = rng.normal(size=(2, 4, 5, 1)).astype("float32")
    network = keras.Sequential(
        [keras.Input((4, 5, 1)), keras.layers.Flatten(), keras.layers.Dense(3)]
    )
    layer = MirrorAverage(network)
    mirrored = images[:, :, ::-1]
    seen, seen_mirrored = (keras.ops.convert_to_numpy(network(x)) for x in (images, mirrored))
    assert np.abs(seen - seen_mirrored).max() > 0.1
    for x in (images, mirrored):
        average = keras.ops.convert_to_numpy(layer(x))
        np.testing.assert_allclose(average, (seen + seen_mirrored) / 2, atol=1e-6)
    trained = keras.ops.convert_to_numpy(layer(images, training=True))
    np.testing.assert_allclose(trained, seen, atol=1e-6)
