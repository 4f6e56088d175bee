"""Early exits of a network: what they see, and the first of them as a network of their own."""

import keras
import numpy as np
import pytest
from small_models import outputs

from tfdml.models import build_embedder, first_levels
from tfdml.models.caffe import exit_features

pytestmark = pytest.mark.usefixtures("freed")


def test_an_exit_sees_nothing_that_lies_deeper(rng):
    embedder = build_embedder("small_cnn", 4, input_shape=(28, 28, 1), levels=3)
    images = rng.uniform(0, 255, (2, 28, 28, 1)).astype("float32")
    before = outputs(embedder, images).reshape(2, 3, 4)
    for layer, changed in (("conv4", [2]), ("conv3", [1, 2]), ("exit1_conv", [0])):
        kernel = embedder.get_layer(layer).kernel
        old = np.array(kernel)
        kernel.assign(rng.normal(size=old.shape))
        after = outputs(embedder, images).reshape(2, 3, 4)
        kernel.assign(old)
        differs = np.abs(after - before).max(axis=(0, 2)) > 1e-4
        assert np.flatnonzero(differs).tolist() == changed


@pytest.mark.parametrize("options", [{}, {"mirror": True}, {"normalize": False, "dropout": 0.5}])
def test_the_first_levels_are_a_network_of_their_own(options, rng):
    embedder = build_embedder("small_cnn", 4, input_shape=(28, 28, 1), levels=3, **options)
    images = rng.uniform(0, 255, (2, 28, 28, 1)).astype("float32")
    whole = outputs(embedder, images)
    sizes = [embedder.count_params()]
    for levels in (3, 2, 1):
        shallow = first_levels(embedder, levels)
        np.testing.assert_allclose(outputs(shallow, images), whole[:, : 4 * levels], atol=1e-6)
        sizes.append(shallow.count_params())
    assert sizes[0] == sizes[1] > sizes[2] > sizes[3]
    again = first_levels(first_levels(embedder, 2), 1)
    np.testing.assert_allclose(outputs(again, images), whole[:, :4], atol=1e-6)


def test_there_are_no_first_levels_of_one_embedding():
    embedder = build_embedder("small_cnn", 4, input_shape=(28, 28, 1))
    for levels in (1, 2):
        with pytest.raises(ValueError, match=r"`embedder`.*2 levels"):
            first_levels(embedder, levels)


def test_two_levels_are_the_deeper_ones_of_three():
    embedder = build_embedder("small_cnn", 4, input_shape=(28, 28, 1), levels=2)
    assert embedder.output_shape == (None, 8)
    assert embedder.get_layer("exit1_pool").input.shape == (None, 3, 3, 64)


@pytest.mark.parametrize("side", [14, 7, 5, 3, 1])
def test_an_exit_averages_the_pixels_that_there_are(side):
    maps = keras.Input((side, side, 2))
    model = keras.Model(maps, exit_features(maps, "exit"))
    pooled = keras.Model(maps, model.get_layer("exit_pool").output)
    ones = pooled(np.ones((1, side, side, 2), "float32"))
    np.testing.assert_allclose(ones, 1, rtol=1e-6)
    assert ones.shape[1] == {14: 4, 7: 3, 5: 1, 3: 1, 1: 1}[side]
    assert model.output_shape == (None, 1024)
