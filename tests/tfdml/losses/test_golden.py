"""The losses equal `tests/golden/golden.json`, which was computed independently of them."""

import json
import pathlib

import keras
import numpy as np
import oracles
import pytest
from backend import PRECISIONS, slow_on_jax, value_and_gradient
from cases import FIRST
from keras import ops

from tfdml import losses
from tfdml.layers import PDDM, DensityTargets
from tfdml.losses.double_header import mine

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
CONTENT = json.loads((GOLDEN / "golden.json").read_text())
INPUTS = CONTENT["inputs"]
LETTERS = {"difference": "u", "position": "v", "combination": "c", "score": "s"}
DENSITY_BASES = {  # golden case -> its base, and how many terms it sums where the base averages
    "dmlda_con_batch": ({"name": "contrastive", "average_over": "batch"}, 1.0),
    "dmlda_con_sum": ({"name": "contrastive", "average_over": "sum"}, 1.0),
    "dmlda_tri_mean": ("triplet", 1.0),
    "dmlda_np_sum": ({"name": "npair", **FIRST}, 3.0),
}
OVER = {"ordered": "pairs", "mean": "triplets"}  # how the golden file calls what is averaged


def density_of_classes(case, dtype):
    args = case["args"]
    options = {name: args[name] for name in ("eta", "correlation")}
    density = [*args["d0"].values()]
    loss = losses.get_regularizer("density", initial_density=density, **options)
    loss.layer = DensityTargets(3, dtype=dtype)
    loss.layer.build()
    loss.layer.targets.assign([*args["alpha"].values()])
    return loss


def learned(case, dtype):
    """A loss that learns a similarity, its layer with the case's weights."""
    args, names = case["args"], ("pddm_triplet", "quadruplet", "lmdm", "pddm")
    name = next(name for name in names if case["name"].startswith(name))
    if name == "quadruplet":
        return losses.get(name, preset="published", beta=args["beta"])
    weights = INPUTS[f"pddm_params_{case['input']}"]
    layer = PDDM(use_position=name != "lmdm", dtype=dtype)
    layer.build((None, len(weights["bu"])))
    for variable in layer.weights:
        value = np.array(weights[golden_name(variable)])
        if name == "lmdm" and golden_name(variable) == "Wc":
            value = value[: len(weights["bu"])]
        variable.assign(value.reshape(variable.shape))
    options = {"alpha": "alpha", "beta": "beta", "embedding_weight": "lam", "squared": "squared"}
    given = {option: args[key] for option, key in options.items() if key in args}
    given["score_scale"] = args["scale"]
    return losses.get(name, preset="published", similarity=layer, **given)


def golden_name(variable):
    name, part = variable.path.split("/")[-1].split("_")
    return ("W" if part == "kernel" else "b") + LETTERS[name]


def loss_of(case, dtype):
    """The loss of a case, and the factor of its value."""
    args, function, factor = case["args"], case["fn"], 1.0
    over = OVER.get(args.get("reduction"), args.get("reduction"))
    levels = [case["input"]] if isinstance(case["input"], str) else case["input"]
    if case["name"].startswith(("pddm_", "lmdm_", "quadruplet_")):
        return learned(case, dtype), factor
    if function == "density_reg":
        return density_of_classes(case, dtype), factor
    if function == "gor":
        return losses.get_regularizer("gor"), factor
    if function == "entropy_pair_posterior":
        return losses.get_regularizer("entropy", threshold=args["threshold"]), factor
    if function == "entropy_parzen":
        return losses.get_regularizer("entropy", of="parzen", bandwidth=args["sigma"]), factor
    if function in ("lifted", "lifted_hard"):
        name = "lifted"
        options = {"variant": args.get("nested", "smooth"), "normalize": args["normalize"]}
        options["margin"] = args["alpha"]
    elif function == "contrastive_allpairs":
        name = "contrastive"
        options = {"margin": args["M"], "squared": args["squared"], "average_over": over}
    elif function == "triplet_all":
        name, options = "triplet", {"margin": args["margin"], "average_over": over}
    elif function == "npair":
        name = "npair"
        options = {"pairs": "all" if isinstance(args["tuples"], str) else "first", "scale": 1.0}
        options |= {"normalize": args["normalize"], "l2": args["l2reg"]}
        factor = len(args["tuples"]) if over == "sum" else 1.0
    elif function == "histogram_loss":
        name, options = "histogram", {"num_bins": args["R"]}
    elif function == "binomial_deviance":
        name = "binomial"
        options = {"alpha": args["alpha"], "beta": args["beta"], "negative_cost": args["C"]}
    elif function == "coupled_clusters":
        name, options = "coupled_clusters", {"margin": args["margin"]}
    elif function == "clustering_loss":
        name, options = "clustering", {"gamma": args["gamma"], "squared": args["squared"]}
    elif function == "L + 10*density_reg(eq8)":
        base, factor = DENSITY_BASES[case["name"].rpartition("_")[0]]
        name, options = "density", {"base": base, "initial_density": [*args["d0"].values()]}
        options["weight"] = args["lambda"] / factor
    elif function == "hdc":
        name = "hdc"
        options = {"preset": "published", "levels": len(levels), "margin": args["M"]}
        options |= {"squared": args["squared"], "selection": args["selection"]}
        options |= {"hard_ratios": [h / 100 for h in args["h"]], "average_over": over or "sum"}
    else:
        assert function == "hdc_release_value"
        name = "hard_contrastive"
        options = {"preset": "published", "hard_ratios": [args["hard_ratio"]], "margin": args["M"]}
        options |= {"average_over": "ordered", "negative_factor": args["factor"]}
    return losses.get(name, **options), factor


def batch_of(case, dtype):
    levels = [case["input"]] if isinstance(case["input"], str) else case["input"]
    parts = [INPUTS[level] for level in levels if level in INPUTS]
    labels = parts[0]["y"]
    if case["fn"] == "coupled_clusters":  # its negatives are no positive sets of their own
        labels = [*(0 for _ in case["args"]["pos"]), *range(1, 1 + len(case["args"]["neg"]))]
    gradient = np.array(case["grad"])
    if len(parts) > 1:
        gradient = np.concatenate(gradient, axis=1)
    x = np.concatenate([part["X"] for part in parts], axis=1).astype(dtype)
    return np.array(labels), x, gradient


NOT_EXPRESSED = {"contrastive_paired", "triplet_listed"}
CASES = [
    case
    for case in CONTENT["cases"]
    if case["fn"] not in NOT_EXPRESSED and case["args"].get("reduction") != "separate"
]


def some(cases):
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


def test_the_golden_file_has_its_147_cases():
    assert len(CASES) == 147


@slow_on_jax
@some(CASES)
def test_equals_the_golden_values(case):
    for dtype, tolerance in PRECISIONS:
        loss, factor = loss_of(case, dtype)
        labels, x, expected = batch_of(case, dtype)
        value, gradient = value_and_gradient(loss, labels, x)
        assert abs(factor * value - case["value"]) <= tolerance * max(1.0, abs(case["value"]))
        np.testing.assert_allclose(factor * gradient, expected, atol=tolerance)


OF_VARIABLES = [case for case in CASES if "grad_params" in case or "grad_alpha" in case]


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="takes gradients by its tape")
@some(OF_VARIABLES)
def test_equals_the_golden_gradients_of_the_weights(case):
    import tensorflow as tf

    loss, _ = loss_of(case, "float64")
    labels, x, _ = batch_of(case, "float64")
    with tf.GradientTape() as tape:
        value = loss(labels, x)
    gradients = tape.gradient(value, [variable.value for variable in loss.layer.weights])
    for variable, gradient in zip(loss.layer.weights, gradients, strict=True):
        if "grad_alpha" in case:
            expected = np.array(case["grad_alpha"])
        else:
            expected = np.array(case["grad_params"][golden_name(variable)])
        gradient = tf.convert_to_tensor(gradient)
        np.testing.assert_allclose(gradient, expected.reshape(variable.shape), atol=1e-7)


@some([case for case in CASES if "scores" in case])
def test_scores_and_mines_what_the_golden_file_does(case):
    labels, x, _ = batch_of(case, "float64")
    scores = ops.convert_to_numpy(loss_of(case, "float64")[0].layer.matrix(oracles.unit(x)))
    off_diagonal = ~np.eye(len(labels), dtype=bool)
    expected = np.array(case["scores"], dtype=float)
    np.testing.assert_allclose(scores[off_diagonal], expected[off_diagonal], atol=1e-9)
    quadruplet = mine(ops.convert_to_tensor(labels), ops.convert_to_tensor(scores), 1)
    assert [int(row[0]) for row in quadruplet[:4]] == case["quadruplet"]
    ends = scores[off_diagonal].min(), scores[off_diagonal].max()
    np.testing.assert_allclose(ends, case["scale_lo_hi"], atol=1e-9)


@slow_on_jax
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_equals_the_golden_values_of_listed_pairs(normalize, dtype, tolerance):
    name = f"contrastive_eq1_A_{normalize}"
    case = next(case for case in CONTENT["cases"] if case["name"] == name)
    batch, args = INPUTS[case["input"]], case["args"]
    rows_of_pairs = np.array(args["pairs"]).T.reshape(-1)  # the left ones, the right ones
    options = {"pairs": "halves", "squared_hinge": True, "average_over": "batch"}
    loss = losses.get("contrastive", margin=args["alpha"], normalize=normalize, **options)
    x = np.array(batch["X"], dtype)[rows_of_pairs]
    value, gradient = value_and_gradient(loss, np.array(batch["y"])[rows_of_pairs], x)
    gradient_of_rows = np.zeros((len(batch["X"]), x.shape[1]))
    np.add.at(gradient_of_rows, rows_of_pairs, gradient)
    assert abs(value - case["value"]) <= tolerance
    np.testing.assert_allclose(gradient_of_rows, case["grad"], atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "key", "raw", "unit"),
    [
        ("lifted", {"margin": 1.0}, "lifted", 12.62638, 11.10282),
        ("triplet", {"mining": "semihard", "squared": False}, "semihard", 0.849135, 0.954043),
        ("triplet", {"mining": "semihard"}, "semihard_sq", None, None),
        ("triplet", {"mining": "hard", "squared": False}, "hard", 3.206317, 1.752096),
        (
            "triplet",
            {"margin": 0.05, "squared": False, "average_over": "active"},
            None,
            None,
            0.299276,
        ),
    ],
)
def test_equals_tensorflow_addons_and_the_peer_libraries(name, options, key, raw, unit):
    golden = json.loads((GOLDEN / "tfa_golden.json").read_text())
    labels, x = np.array(golden["y"]), np.array(golden["e"], "float32")
    if key is not None:
        value = float(losses.get(name, **options, normalize=False)(labels, x))
        np.testing.assert_allclose(value, golden["tfa"][key], rtol=1e-5)
    x = np.random.default_rng(0).normal(size=(24, 8)).astype("float32")
    labels = np.repeat(np.arange(6), 4)
    for normalize, expected in ((False, raw), (True, unit)):
        if expected is not None:
            value = float(losses.get(name, **options, normalize=normalize)(labels, x))
            np.testing.assert_allclose(value, expected, rtol=1e-5)
