"""The losses equal `tests/golden/golden.json`, which was computed independently of them."""

import json
import pathlib

import keras
import numpy as np
import oracles
import pytest
from backend import PRECISIONS, slow_on_jax, value_and_gradient
from keras import ops

from tfdml import losses
from tfdml.layers import PDDM, DensityTargets
from tfdml.losses.double_header import mine

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
CONTENT = json.loads((GOLDEN / "golden.json").read_text())
INPUTS = CONTENT["inputs"]
LETTERS = {"difference": "u", "position": "v", "combination": "c", "score": "s"}


def loss_of(case, dtype):
    """The loss of a case, with the weights that it has for what is learned."""
    if "regularizer" in case:
        options = {**case["regularizer"]}
        loss = losses.get_regularizer(options.pop("name"), **options)
    elif case["loss"]["name"] in ("pddm", "pddm_triplet", "lmdm"):
        loss = losses.get({**case["loss"], "similarity": similarity_of(case, dtype)})
    else:
        loss = losses.get(case["loss"])
    if case["fn"] == "density_reg":
        loss.layer = DensityTargets(3, dtype=dtype)
        loss.layer.build()
        loss.layer.targets.assign([*case["args"]["alpha"].values()])
    return loss


def similarity_of(case, dtype):
    weights = INPUTS[f"pddm_params_{case['input']}"]
    layer = PDDM(use_position=case["loss"]["name"] != "lmdm", dtype=dtype)
    layer.build((None, len(weights["bu"])))
    for variable in layer.weights:
        value = np.array(weights[golden_name(variable)])
        if golden_name(variable) == "Wc" and not layer.use_position:
            value = value[: len(weights["bu"])]
        variable.assign(value.reshape(variable.shape))
    return layer


def golden_name(variable):
    name, part = variable.path.split("/")[-1].split("_")
    return ("W" if part == "kernel" else "b") + LETTERS[name]


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


CASES = [case for case in CONTENT["cases"] if {"loss", "regularizer"} & {*case}]


def some(cases):
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


def test_the_golden_file_has_its_147_cases():
    assert len(CASES) == 147


@slow_on_jax
@some(CASES)
def test_equals_the_golden_values(case):
    for dtype, tolerance in PRECISIONS:
        labels, x, expected = batch_of(case, dtype)
        value, gradient = value_and_gradient(loss_of(case, dtype), labels, x)
        factor = case.get("terms", 1)
        assert abs(factor * value - case["value"]) <= tolerance * max(1.0, abs(case["value"]))
        np.testing.assert_allclose(factor * gradient, expected, atol=tolerance)


OF_VARIABLES = [case for case in CASES if "grad_params" in case or "grad_alpha" in case]


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="takes gradients by its tape")
@some(OF_VARIABLES)
def test_equals_the_golden_gradients_of_the_weights(case):
    import tensorflow as tf

    loss = loss_of(case, "float64")
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
    scores = ops.convert_to_numpy(loss_of(case, "float64").layer.matrix(oracles.unit(x)))
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


@pytest.mark.parametrize(
    ("name", "options", "key"),
    [
        ("lifted", {"margin": 1.0}, "lifted"),
        ("triplet", {"mining": "semihard", "squared": False}, "semihard"),
        ("triplet", {"mining": "semihard"}, "semihard_sq"),
        ("triplet", {"mining": "hard", "squared": False}, "hard"),
    ],
)
def test_equals_tensorflow_addons(name, options, key):
    golden = json.loads((GOLDEN / "tfa_golden.json").read_text())
    labels, x = np.array(golden["y"]), np.array(golden["e"], "float32")
    value = float(losses.get(name, **options, normalize=False)(labels, x))
    np.testing.assert_allclose(value, golden["tfa"][key], rtol=1e-5)
