"""evaluate.py on projected embeddings, expanded queries and mutual neighbours."""

import json
import shutil

import numpy as np
import programs
import pytest
from sklearn.decomposition import PCA

from tfdml import evaluation
from tfdml.programs import evaluate
from tfdml.runs.stored import read_embeddings


@pytest.fixture
def score(finished, tmp_path):
    """Scores the run in a folder of its own; returns its scores, or a sentence."""
    for name in ("runs", "saved_models"):
        shutil.copytree(finished[0] / name, tmp_path / name)

    def start(*options, model="saved_models/small"):
        out = tmp_path / "scores.json"
        flags = ["--nmi=false", "--out", out, *options]
        found = programs.run(evaluate.main, model, *flags, cwd=tmp_path)
        return found.sentence if found.code else json.loads(out.read_text())["scores"]

    return start


def test_components_of_the_training_images_are_scored_and_exported(score, tmp_path):
    for split in ("test", "train"):
        score("--embeddings", tmp_path / f"{split}.npz", "--split", split)
    rows, training = (read_embeddings(tmp_path / f"{name}.npz") for name in ("test", "train"))
    fitted = PCA(5, whiten=True, svd_solver="full").fit(training.embeddings)
    whitened = fitted.transform(rows.embeddings)
    whitened /= np.linalg.norm(whitened, axis=1, keepdims=True)
    labels = np.unique(rows.labels, return_inverse=True)[1]
    options = "--pca", "5", "--whiten"
    scores = score(*options, "--export", "white", "--export_gallery", "--false_match_rate", "0.1")
    assert isinstance(scores, dict), scores
    expected = evaluation.retrieval_scores(whitened, labels, 1, metrics=["recall", "map@r"])
    assert {name: scores[name] for name in expected} == pytest.approx(expected, abs=5e-3)
    assert score(model="white")["recall@1"] == pytest.approx(scores["recall@1"], abs=1e-6)
    assert "has components of `pca` alone" in score("--export", "again", model="white")


def test_queries_are_expanded_and_neighbours_mutual(score, tmp_path):
    score("--embeddings", tmp_path / "rows.npz")
    stored = read_embeddings(tmp_path / "rows.npz")
    rows, labels = stored.embeddings, np.unique(stored.labels, return_inverse=True)[1]
    expanded = evaluation.expand_queries(rows, 4, alpha=2)
    ranking = evaluation.rank(expanded, labels, rows, labels, own=np.arange(len(rows)))
    nearest = labels[ranking.nearest[:, 0]] == labels
    scores = score("--expand_queries", "4", "--expansion_alpha", "2")
    assert scores["recall@1"] == pytest.approx(nearest.mean(), abs=5e-3)
    distances = evaluation.k_reciprocal_distances(rows, k1=10, k2=3)(np.arange(len(rows)))
    np.fill_diagonal(distances, np.inf)
    nearest = labels[distances.argmin(axis=1)] == labels
    scores = score("--reciprocal", "10", "--reciprocal_options.k2", "3")
    assert scores["recall@1"] == pytest.approx(nearest.mean(), abs=5e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--pca", "17"], "`pca` must be at most 16 here"),
        (["--pca", "4", "--split", "train"], "`pca` needs the images of the training"),
        (["--reciprocal", "1000"], "`reciprocal` must be at most the"),
    ],
)
def test_what_cannot_be_is_rejected_before_it_embeds(options, message, score):
    assert message in score(*options)
