"""What a run says of its scores, and what to try where training did not raise them."""

import types

import keras
import numpy as np
import pytest
from PIL import Image
from small_runs import few_digits, scores_of

import pipelines
from tfdml.programs import train
from tfdml.runs import outcome
from tfdml.runs.recipe import Recipe


def run_of(recipe):
    train_split = types.SimpleNamespace(num_classes=40)
    return types.SimpleNamespace(recipe=recipe, images=types.SimpleNamespace(train=train_split))


def test_a_run_that_ends_below_its_start_says_what_to_try(capsys):
    recipe, _ = Recipe(weights="imagenet", head_multiplier=1.0, steps=0).completed(40)
    scores = {
        "untrained": {"recall@1": 0.5},
        "scored_classes": "test",
        "train_seconds": 1.0,
        "train_seconds_from_step": 0,
    }
    for recall, sentence in (
        (0.6, None),
        (0.5, "Training did not raise Recall@1: 0.5000 → 0.5000."),
        (0.4, "Training did not raise Recall@1: 0.5000 → 0.4000."),
    ):
        scores["trained"] = {"recall@1": recall}
        train.report(run_of(recipe), scores)
        out = capsys.readouterr().out
        printed = sentence is not None
        assert not printed or sentence in out
        for advice in (
            "--steps 500",
            "--loss npair",
            "--head_multiplier 10",
            "--classes_per_batch 40",
            "--learning_rate 1e-05",
        ):
            assert (advice in out) == printed, advice


@pytest.mark.parametrize(
    ("rate", "num_classes", "advice", "not_said"),
    [
        (0.1, 40, "The default learning rate, 0.001: leave out", "--learning_rate 0.01"),
        (0.001, 40, "--learning_rate 0.0001", "More classes"),
        (0.0001, 40, "--classes_per_batch 40", "--learning_rate"),
        (0.0001, 5, "More classes: 5 are few", "leave out"),
        (0.0001, 5, "More classes: 5 are few", "Another objective"),
    ],
)
def test_advice_depends_on_the_rate_and_the_classes(rate, num_classes, advice, not_said):
    recipe, _ = Recipe(learning_rate=rate).completed(num_classes)
    text = " ".join(outcome.what_to_try(recipe, num_classes, {}))
    assert advice in text
    assert not_said not in text


def test_advice_names_a_batch_that_the_sampler_takes():
    recipe, _ = Recipe(sampler="groups").completed(41)
    assert "--classes_per_batch 40" in " ".join(outcome.what_to_try(recipe, 41, {}))


def test_a_learned_similarity_that_collapsed_is_stated(capsys):
    recipe, _ = Recipe(loss="pddm", steps=0).completed(40)
    scores = {
        "untrained": {"recall@1": 0.5, "similarity_auc": 0.5},
        "trained": {"recall@1": 0.6, "similarity_auc": 0.51},
        "scored_classes": "test",
        "train_seconds": 1.0,
        "train_seconds_from_step": 0,
        "improved": True,
    }
    for collapsed in (False, True):
        scores["similarity_collapsed"] = collapsed
        train.report(run_of(recipe), scores)
        out = capsys.readouterr().out
        assert ("its ROC curve is 0.51" in out) == collapsed
        assert ("More steps: --steps 500" in out) == collapsed
        assert "--learning_rate" not in out  # a lower one would learn it later


def test_a_learned_similarity_is_judged_by_pairs(trained_with_pddm):
    with few_digits():
        test = pipelines.load("digits").test
    folder = trained_with_pddm / "runs" / "small"
    model, scores = keras.models.load_model(folder / "checkpoint.keras"), scores_of(folder)
    auc = outcome.similarity_auc(model.embed(test.images), test.labels, model.similarity)
    assert scores["trained"]["similarity_auc"] == pytest.approx(auc, abs=1e-3)
    assert scores["similarity_collapsed"] == (auc < outcome.COLLAPSED)


def test_a_similarity_by_class_is_distinguished_from_chance(rng):
    labels = np.repeat(np.arange(5), 4)
    embeddings = np.eye(5)[labels]

    def knowing(a, b):
        return np.sum(a * b, axis=1)

    def guessing(a, b):
        return rng.uniform(size=len(a))

    assert outcome.similarity_auc(embeddings, labels, knowing) == 1
    assert outcome.similarity_auc(embeddings, labels, guessing) == pytest.approx(0.5, abs=0.05)


SCORES = {"untrained": {"recall@1": 0.25}, "trained": {"recall@1": 0.75}}
LOSSES = "epoch,loss\n0,2.5\n1,{}\n"
TARGETS = (
    "epoch,loss,target_highest,target_lowest,target_mean\n0,2.5,0.6,0.5,0.55\n1,{},0.9,0.4,0.7\n"
)


@pytest.mark.parametrize(
    ("epochs", "width"), [(LOSSES, 1000), (TARGETS, 1500)], ids=["loss", "targets"]
)
def test_draws_the_training_and_the_targets_of_density(epochs, width, tmp_path):
    log, pictures = tmp_path / "epochs.csv", []
    for loss in (1.5, 9.5):
        log.write_text(epochs.format(loss))
        outcome.plot_training(log, SCORES, tmp_path / "training.png")
        assert Image.open(tmp_path / "training.png").size == (width, 400)
        pictures.append((tmp_path / "training.png").read_bytes())
    assert pictures[0] != pictures[1]
