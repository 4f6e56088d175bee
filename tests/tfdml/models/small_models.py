"""Small models of images of 8 pixels, and options with which every loss descends."""

import keras
import numpy as np
import pytest

from tfdml import EmbeddingModel, losses, optimizers
from tfdml.layers import UnitLength

on_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="of the backend TensorFlow"
)
LABELS = np.repeat(np.arange(4), 4)
OVER_PROXIES = ("arcface", "cosface", "norm_softmax", "proxy_anchor", "proxy_nca", "soft_triple")
LEARNED = ("pddm", "lmdm", "pddm_triplet")
# A mean over active pairs may rise while easy pairs leave it.
ACTIVE = ("contrastive", "hdc", "hard_contrastive")
OPTIONS = {name: {"average_over": "pairs"} for name in ACTIVE}
OPTIONS |= {name: {"similarity": {"dropout": 0.0}} for name in LEARNED}
OPTIONS["density"] = {"initial_density": [0.1, 0.2, 0.3, 0.4]}
OPTIONS |= {name: {"num_classes": 4} for name in (*OVER_PROXIES, "sub_center_arcface")}
OPTIONS["sampled_classes"] = {"base": {"name": "arcface", "num_classes": 40}, "rate": 0.9}
OPTIONS["memory"] = {"base": {"name": "contrastive", **OPTIONS["contrastive"]}, "size": 32}
OPTIONS["guarded"] = {"base": "npair", "margin": -0.5}
OPTIONS["matryoshka"] = {"base": "npair", "dims": (8, 4)}
OPTIONS["weighted_sum"] = {"parts": {"arcface": (1.0, {"num_classes": 4}), "triplet": 0.5}}
OPTIONS["regularized"] = {"base": "triplet", "regularizer": "gor"}


def by_default(names, those):
    """`names` as parameters of a test, slow those that are not among `those`."""
    return [pytest.param(name, marks=() if name in those else pytest.mark.slow) for name in names]


def build(**compile_options):
    keras.utils.set_random_seed(0)
    options = {"optimizer": optimizers.Adam(1e-3), "loss": losses.get("triplet"), **compile_options}
    layers = keras.layers.Rescaling(1 / 255), keras.layers.Flatten()
    rows = keras.layers.Dense(8 * options["loss"].levels), UnitLength()
    model = EmbeddingModel(keras.Sequential([keras.Input((8, 8, 1)), *layers, *rows]))
    model.compile(**options)
    return model


def one_layer():
    dense = keras.layers.Dense(4, kernel_initializer=keras.initializers.GlorotUniform(seed=0))
    return EmbeddingModel(keras.Sequential([keras.Input((6,)), dense]))


def outputs(model, images):
    """As `model.predict`, which would compile a function."""
    return keras.ops.convert_to_numpy(model(images))
