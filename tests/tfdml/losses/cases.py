"""The losses with options: those that go the ways through the code, and others with all options."""

import pytest

from tfdml import losses

# A similarity with the same first weights each time, for the losses that learn one.
SIMILARITY = {"units": 8, "seed": 3, "dropout": 0.0, "difference_bias": 0.5, "dtype": "float64"}
LEARNED = {"similarity": SIMILARITY}
ONE_QUADRUPLET = {
    **{"num_quadruplets": 1, "score_scale": "minmax", "alpha": 0.5, "beta": 1.0},
    **{"temperature": None, "embedding_mining": "similarity", "squared": True},
}
FIRST, DISJOINT = ({"pairs": pairs, "scale": 1.0} for pairs in ("first", "disjoint"))
DENSITIES = [0.1 + 0.05 * label for label in range(12)]
INITIALIZER = {"class_name": "RandomNormal", "config": {"stddev": 1.0, "seed": 3}}
PROXIES = {"num_classes": 12, "initializer": INITIALIZER}  # the same each time
PARZEN = {"name": "entropy", "of": "parzen", "bandwidth": 0.7, "normalize": False}
PATHS = [
    ("arcface", PROXIES),
    ("arcface", {**PROXIES, "scale": 5.0, "straight_through": True}),
    ("cosface", PROXIES),
    ("norm_softmax", PROXIES),
    ("proxy_anchor", PROXIES),
    ("proxy_nca", {**PROXIES, "scale": 2.0, "variant": "classic", "proxy_multiplier": 2.0}),
    (
        "soft_triple",
        {**PROXIES, "scale": 4.0, "gamma": 0.5, "margin": 0.1, "weight": 0.7, "centers": 3},
    ),
    ("sub_center_arcface", PROXIES),
    ("binomial", {}),
    ("circle", {}),
    ("clustering", {}),
    ("contrastive", {}),
    ("contrastive", {"margin": 0.5, "squared": False, "average_over": "pairs"}),
    ("contrastive", {"pairs": "halves", "squared_hinge": True, "margin": 5.0, "normalize": False}),
    ("coupled_clusters", {}),
    ("density", {"initial_density": DENSITIES, "weight": 0.5}),
    ("histogram", {}),
    ("histogram", {"num_bins": 33, "normalize": False}),  # products beyond the last bin
    ("guarded", {"base": {"name": "npair", "scale": 1.0}, "margin": 0.0}),
    ("regularized", {"base": "contrastive", "regularizer": "gor"}),
    ("regularized", {"base": "lifted", "regularizer": PARZEN, "weight": 0.3}),
    ("regularized", {"base": "hdc", "regularizer": {"name": "entropy", "threshold": 1.5}}),
    ("triplet", {}),
    ("triplet", {"average_over": "batch", "squared": False, "normalize": False}),
    ("triplet", {"mining": "semihard"}),
    ("triplet", {"mining": "hard", "margin": 0.2, "squared": False, "average_over": "batch"}),
    ("lifted", {}),
    ("lifted", {"variant": "max"}),
    ("matryoshka", {"base": "triplet", "dims": (6, 3)}),
    ("memory", {"base": "contrastive", "size": 30}),
    ("multi_similarity", {}),
    ("ntxent", {}),
    ("recall_at_k", {"rank_temperature": 0.1}),
    ("roadmap", {"temperature": 0.1}),
    ("sampled_classes", {"base": {"name": "cosface", **PROXIES}, "rate": 0.5, "seed": 1}),
    ("sincere", {}),
    ("smooth_ap", {"temperature": 0.1}),
    ("supcon", {}),
    ("npair", FIRST),
    ("npair", {"scale": 1.0, "normalize": False, "l2": 0.01}),
    # A margin that no pair reaches: what a later level makes of tied pairs hangs on their order.
    ("hdc", {"selection": "cascade", "hard_ratios": (0.8, 0.6, 0.3), "margin": 5.0}),
    ("hdc", {"selection": "previous", "squared": False, "average_over": "sum", "margin": 1.5}),
    ("hard_contrastive", {"hard_ratios": (0.2,), "average_over": "ordered"}),
    ("pddm", LEARNED),
    ("pddm", {**LEARNED, **ONE_QUADRUPLET}),
    ("quadruplet", {}),
    ("quadruplet", {"temperature": None}),
    ("weighted_sum", {"parts": {"contrastive": 1.0, "lifted": [0.5, {"margin": 2.0}]}}),
]
OTHERS = [
    ("arcface", {**PROXIES, "scale": 5.0, "margin": 1.0, "proxy_multiplier": 3.0}),
    ("cosface", {**PROXIES, "scale": 4.0, "margin": 0.1, "centers": 2, "proxy_multiplier": 2.0}),
    ("norm_softmax", {**PROXIES, "scale": 3.0, "proxy_multiplier": 2.0}),
    ("proxy_anchor", {**PROXIES, "scale": 3.0, "margin": 0.3, "proxy_multiplier": 2.0}),
    ("soft_triple", {**PROXIES, "centers": 1, "proxy_multiplier": 2.0}),
    ("sub_center_arcface", {**PROXIES, "centers": 2}),
    ("binomial", {"alpha": 1.5, "beta": 0.1, "negative_cost": 3.0, "normalize": False}),
    ("circle", {"margin": 0.25, "scale": 3.0}),
    ("clustering", {"gamma": 20.0, "squared": True, "swaps": 1, "normalize": False}),
    ("contrastive", {"average_over": "batch", "normalize": False}),
    ("coupled_clusters", {"normalize": True, "margin": 1.0}),
    (
        "density",
        {
            **{"base": {"name": "triplet", "margin": 0.5}, "num_classes": 12, "weight": 0.5},
            **{"correlation": False, "alpha_init": 0.75, "alpha_multiplier": 3.0},
        },
    ),
    ("density", {"base": {"name": "npair", **DISJOINT}, "initial_density": DENSITIES, "eta": 1.0}),
    ("guarded", {"base": "contrastive", "max_similarity": 0.3}),
    ("guarded", {"base": "triplet", "margin": -0.3, "relative_margin": 0.1}),
    ("guarded", {"base": {"name": "memory", "base": "multi_similarity", "size": 30}, "margin": 0}),
    ("triplet", {"margin": 0.2, "average_over": "active"}),
    ("triplet", {"mining": "semihard", "margin": 0.3, "squared": False, "average_over": "active"}),
    ("lifted", {"margin": 2.0, "normalize": True}),
    ("lifted", {"variant": "sum", "margin": 2.0}),
    ("matryoshka", {"base": "lifted", "dims": (2, 6), "weights": (0.5, 2.0)}),
    ("memory", {"base": "multi_similarity", "size": 30, "start_step": 0, "weight": 0.5}),
    ("multi_similarity", {"epsilon": None, "threshold": 0.2, "alpha": 1.0, "beta": 5.0}),
    ("multi_similarity", {"beta": 3.0, "epsilon": 0.5, "normalize": False}),
    ("ntxent", {"temperature": 0.5, "margin": 0.3, "normalize": False}),
    ("recall_at_k", {"k": (1, 3), "rank_temperature": 0.2, "count_temperature": 0.5}),
    ("recall_at_k", {"rank_temperature": 0.3, "rank_self": True, "normalize": False}),
    ("recall_at_k", {"rank_temperature": 0.1, "mix": 4, "seed": 1}),
    (
        "roadmap",
        {
            **{"temperature": 0.2, "slope": 3.0, "margin": 0.3, "offset": 1.2},
            **{"calibration": 0.5, "positive_target": 0.7, "negative_target": 0.1},
        },
    ),
    ("roadmap", {"temperature": 0.3, "rank_self": True, "calibration": 0.0, "normalize": False}),
    ("sincere", {"temperature": 0.5, "margin": 0.3, "normalize": False}),
    ("smooth_ap", {"temperature": 0.3, "rank_self": True, "normalize": False}),
    ("supcon", {"temperature": 0.5, "margin": 0.3, "normalize": False}),
    ("hdc", {"average_over": "ordered", "negative_factor": 10.0, "mine_positives": True}),
    ("hdc", {"mine_positives": True, "level_weights": (1.0, 0.0, 2.5), "normalize": False}),
    (
        "hdc",
        {
            **{"levels": 2, "hard_ratios": (0.7, 0.29)},
            **{"selection": "previous", "mine_positives": True},
        },
    ),
    ("pddm", {**LEARNED, "num_quadruplets": 1, "beta": 2.0, "embedding_weight": 1.0}),
    ("pddm", {**LEARNED, "embedding_mining": "similarity", "squared": True}),
    ("pddm", {**LEARNED, "temperature": None, "alpha": 0.5}),
    ("lmdm", {**LEARNED, **ONE_QUADRUPLET}),
    ("pddm_triplet", {**LEARNED, **ONE_QUADRUPLET, "score_scale": None}),
    ("quadruplet", {"num_quadruplets": 1, "beta": 1.0, "squared": True, "temperature": None}),
    ("quadruplet", {"headers": 1, "normalize": False}),
]
CASES = [*PATHS, *OTHERS]


def id_of(name, options):
    said = {k: v for k, v in options.items() if not isinstance(v, dict) and v != DENSITIES}
    return "-".join([name, *(f"{key}={value}" for key, value in said.items())])


def parameters(fast):
    """Parametrizes a test by all cases, those not among the fast ones slow."""
    cases = [
        pytest.param(*case, id=id_of(*case), marks=() if case in fast else pytest.mark.slow)
        for case in CASES
    ]
    return pytest.mark.parametrize(("name", "options"), cases)


FIRST_PATHS = {losses.LOSSES[case[0]]: case for case in reversed(PATHS)}  # of each class
every_loss, every_path = parameters(CASES), parameters(PATHS)
every_class = parameters([*FIRST_PATHS.values()])
# For what `base.py` decides: unit rows, raw rows, and rows of several levels.
some_losses = pytest.mark.parametrize(
    ("name", "options"), [("contrastive", {}), ("coupled_clusters", {}), ("hdc", {})]
)
# Those with loops, sorts or branches, which XLA compiles in its own way; and one of each kind.
LOOPS = {"triplet", "hdc", "smooth_ap", "recall_at_k", "npair", "histogram", "pddm", "soft_triple"}
xla_losses = parameters([case for case in FIRST_PATHS.values() if case[0] in LOOPS])
KINDS = {"lifted", "hdc", "supcon", "smooth_ap", "arcface", "proxy_anchor", "weighted_sum"}
each_kind = pytest.mark.parametrize(
    ("name", "options"), [case for case in FIRST_PATHS.values() if case[0] in KINDS]
)
