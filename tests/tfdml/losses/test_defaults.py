"""Defaults are part of the contract: a changed one changes the results of whoever relies on it."""

import inspect

import pytest

from tfdml import layers, losses

COMMON = {"normalize": True, "initializer": "centred_class_means", "proxy_multiplier": None}
DEFAULTS = {
    losses.BinomialDevianceLoss: {"alpha": 2.0, "beta": 0.5, "negative_cost": 5.0},
    losses.ClusteringLoss: {"gamma": 10.0, "squared": False, "swaps": 5},
    losses.ContrastiveLoss: {
        "margin": 1.0,
        "squared": True,
        "pairs": "all",
        "squared_hinge": False,
        "average_over": "active",
    },
    losses.CrossBatchMemoryLoss: {"start_step": 1000, "weight": 1.0},
    losses.CoupledClustersLoss: {"margin": None, "normalize": False},
    losses.DensityAdaptiveLoss: {
        "weight": 3.0,
        "eta": 0.5,
        "correlation": True,
        "alpha_init": 0.5,
        "alpha_multiplier": 1.0,
        "base": "npair",
        "initial_density": None,
        "num_classes": None,
    },
    losses.DensityRegularizer: {
        "eta": 0.5,
        "correlation": True,
        "alpha_init": 0.5,
        "alpha_multiplier": 1.0,
        "initial_density": None,
        "num_classes": None,
    },
    losses.DoubleHeaderHingeLoss: {
        "alpha": 0.1,
        "beta": 0.2,
        "embedding_weight": 0.5,
        "headers": 2,
        "metric_headers": 2,
        "num_quadruplets": "per_positive_pair",
        "score_scale": None,
        "temperature": 0.1,
        "embedding_mining": "distance",
        "mine_with_dropout": True,
        "squared": False,
        "similarity": {"dropout": 0.0, "difference_bias": 0.5},
    },
    losses.EntropyRegularizer: {"of": "pairs", "threshold": 1.0, "bandwidth": 0.5},
    losses.HardAwareCascadeLoss: {
        "levels": 3,
        "hard_ratios": (1.0, 0.5, 0.2),
        "margin": 1.0,
        "squared": True,
        "selection": "own_all",
        "average_over": "active",
        "level_weights": None,
        "negative_factor": 1.0,
        "mine_positives": False,
    },
    losses.HistogramLoss: {"num_bins": 201},
    losses.LiftedStructuredLoss: {"margin": None, "variant": "smooth", "normalize": False},
    losses.MatryoshkaLoss: {"weights": None},
    losses.NPairLoss: {"pairs": "all", "scale": 16.0, "l2": 0.0},
    losses.RegularizedLoss: {"weight": 1.0},
    losses.ArcFaceLoss: {
        "num_classes": None,
        "scale": 64.0,
        "margin": 0.5,
        "centers": 1,
        "straight_through": False,
    },
    losses.CosFaceLoss: {"num_classes": None, "scale": 64.0, "margin": 0.35, "centers": 1},
    losses.NormalizedSoftmaxLoss: {
        "num_classes": None,
        "scale": 20.0,
        "initializer": "class_means",
    },
    losses.ProxyAnchorLoss: {"num_classes": None, "scale": 32.0, "margin": 0.1},
    losses.ProxyNCALoss: {
        "num_classes": None,
        "scale": 18.0,
        "variant": "plusplus",
        "initializer": "class_means",
    },
    losses.SoftTripleLoss: {
        "num_classes": None,
        "centers": 10,
        "scale": 20.0,
        "gamma": 0.1,
        "margin": 0.01,
        "weight": 0.2,
    },
    losses.CircleLoss: {"margin": 0.4, "scale": 16.0},
    losses.MultiSimilarityLoss: {"alpha": 2.0, "beta": 50.0, "threshold": 0.5, "epsilon": 0.1},
    losses.NTXentLoss: {"temperature": 0.07, "margin": 0.0},
    losses.RecallAtKLoss: {
        "k": (1, 2, 4, 8, 16),
        "rank_temperature": 0.01,
        "count_temperature": 1.0,
        "rank_self": False,
        "mix": None,
        "seed": 0,
    },
    losses.ROADMAPLoss: {
        "temperature": 0.01,
        "slope": 100.0,
        "margin": 0.05,
        "offset": 1.44,
        "calibration": 1.0,
        "positive_target": 0.9,
        "negative_target": 0.6,
        "rank_self": False,
    },
    losses.SampledClassesLoss: {"rate": 0.1, "seed": 0},
    losses.SINCERELoss: {"temperature": 0.07, "margin": 0.0},
    losses.SmoothAPLoss: {"temperature": 0.01, "rank_self": False},
    losses.SupConLoss: {"temperature": 0.1, "margin": 0.0},
    losses.TripletLoss: {
        "margin": 1.0,
        "mining": "all",
        "squared": True,
        "average_over": "triplets",
    },
    layers.PDDM: {
        "units": None,
        "use_position": True,
        "dropout": 0.5,
        "difference_bias": 0.0,
        "seed": None,
    },
    layers.DensityTargets: {"start": 0.5, "learning_rate_multiplier": 1.0},
    layers.LocalResponseNormalization: {
        "depth_radius": 2,
        "alpha": 1e-4,
        "beta": 0.75,
        "bias": 1.0,
    },
}


@pytest.mark.parametrize("constructor", DEFAULTS, ids=lambda each: each.__name__)
def test_defaults_are_those_of_the_contract(constructor):
    parameters = inspect.signature(constructor).parameters
    given = {name: of.default for name, of in parameters.items() if of.default is not of.empty}
    common = {name: value for name, value in COMMON.items() if name in given}
    expected = {**common, **DEFAULTS[constructor]}
    assert {name: value for name, value in given.items() if name != "name"} == expected
