"""Decisions of a served model and of its files, beside those of the evaluation."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from image_contents import encode
from PIL import Image
from served_models import installed_formats

from tfdml import evaluation
from tfdml.evaluation import open_set
from tfdml.models import build_embedder
from tfdml.serving import Gallery, export_model, load_network
from tfdml.serving.decision import Decision
from tfdml.serving.exported import load_signatures
from tfdml.serving.metadata import read_metadata
from tfdml.serving.options import FORMATS

SIZE = (12, 10, 3)
LABELS = np.repeat(np.arange(10), 6)
NAMES = [f"class {label}" for label in range(10)]
CALIBRATIONS = [open_set.Platt(3.0, 2.0), open_set.Isotonic(np.array([-2, -0.5]), [0.1, 0.9])]


def rows_of(seed, dim=6):
    rng = np.random.default_rng(seed)
    centres = 2 * np.random.default_rng(0).normal(size=(10, dim))[LABELS]
    return (centres + rng.normal(size=(60, dim))).astype(np.float32)


def decision_of(method, rows, calibration, asked):
    """A decision by rows, of which half of those asked are known, with different probabilities."""
    decision = evaluation.open_set_decision(rows, LABELS, NAMES, false_alarm_rate=0.1)
    rule = open_set.OpenSetRule.fitted(rows, LABELS, method)
    scores = rule(asked)[1]
    points = calibration
    if isinstance(calibration, open_set.Isotonic):
        points = open_set.Isotonic(np.quantile(scores, [0.2, 0.6, 0.9]), np.array([0.1, 0.5, 0.9]))
    return decision._replace(rule=rule, calibration=points, threshold=float(np.median(scores)))


def check_equal(found, expected):
    for name in ("score", "probability"):
        np.testing.assert_allclose(found[name], expected[name], atol=2e-5, rtol=1e-4)
    sure = np.abs(expected["score"] - np.median(expected["score"])) > 1e-3
    for name in ("class_id", "known"):
        np.testing.assert_array_equal(np.asarray(found[name])[sure], expected[name][sure])


@pytest.mark.parametrize("method", open_set.METHODS)
@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_decides_as_the_evaluation_does(method, calibration):
    asked = rows_of(3)
    decision = decision_of(method, rows_of(1), calibration, asked)
    expected = decision(asked)
    assert 0 < expected["known"].mean() < 1
    layer = Decision(decision)
    check_equal(layer(asked), expected)
    assert layer.stated["method"] == method
    assert layer.stated["threshold"] == decision.threshold


@pytest.fixture(scope="module")
def embedded():
    """An embedder, images, and their embeddings."""
    keras.utils.set_random_seed(0)
    embedder = build_embedder("small_cnn", 4, input_shape=SIZE)
    images = np.random.default_rng(0).integers(0, 256, (60, *SIZE)).astype(np.uint8)
    return embedder, images, embedder.predict(images.astype(np.float32), verbose=0)


@pytest.fixture(
    scope="module",
    params=[
        ("mahalanobis", CALIBRATIONS[1]),
        pytest.param(("ratio", CALIBRATIONS[0]), marks=pytest.mark.slow),
    ],
)
def carried(request, embedded, tmp_path_factory):
    """A decision, and a version that carries it, with the files of all runtimes installed."""
    embedder, _, rows = embedded
    method, calibration = request.param
    decision = decision_of(method, rows, calibration, rows)
    gallery = Gallery([str(row) for row in range(60)], rows, [NAMES[row] for row in LABELS])
    added = {"classes": Gallery(NAMES, evaluation.class_means(rows, LABELS)[1]), "gallery": gallery}
    added |= {"decision": decision, "format": ",".join(["saved_model", *installed_formats()])}
    return decision, export_model(embedder, tmp_path_factory.mktemp(method) / "1", **added)


def test_signatures_carry_the_decision(embedded, carried):
    (_, images, rows), (decision, path) = embedded, carried
    expected = decision(rows)
    signatures = load_signatures(path)
    contents = tf.constant([encode(Image.fromarray(image), "PNG") for image in images])
    for found in (
        signatures["decide"](embeddings=tf.constant(rows)),
        signatures["classify"](image_bytes=contents),
        signatures["neighbours"](image_bytes=contents),
    ):
        check_equal(found, expected)
        names = [NAMES[row].encode() for row in found["class_id"].numpy()]
        assert found["class"].numpy().tolist() == names
    assert {"classes", "distances"} <= set(signatures["classify"].structured_outputs)
    stated = read_metadata(path)["decision"]
    assert stated["classes"] == NAMES
    assert stated["threshold"] == decision.threshold


@pytest.mark.parametrize("file_format", FORMATS)
def test_files_carry_the_decision(file_format, embedded, carried):
    (_, images, rows), (decision, version) = embedded, carried
    if file_format not in installed_formats():
        pytest.skip(f"the runtime of {file_format} is not installed")
    expected = decision(rows)
    assert np.ptp(expected["probability"]) > 0.3
    suffix, _ = FORMATS[file_format]
    found = load_network(version / f"model{suffix}")(images=images)
    np.testing.assert_allclose(found["embedding"], rows, atol=1e-4)
    check_equal(found, expected)
    assert found["known"].dtype == bool
