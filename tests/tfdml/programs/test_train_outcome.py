"""What a run says of its scores, and what to try where training did not raise them."""

import types

import keras
import numpy as np
import pytest
from PIL import Image
from small_runs import scores_of

import pipelines
from tfdml.programs import train
from tfdml.runs import outcome
from tfdml.runs.recipe import Recipe

SCORES = {"untrained": {"recall@1": 0.5}, "scored_classes": "test"}
SCORES |= {"train_seconds": 1.0, "train_seconds_from_step": 0}


def reported(recipe, **scores):
    """What is printed of a run on 40 classes that had these scores, beside those above."""
    split = types.SimpleNamespace(num_classes=40)
    images = types.SimpleNamespace(train=split)
    train.report(types.SimpleNamespace(recipe=recipe, images=images), SCORES | scores)


@pytest.mark.parametrize(
    ("recall", "sentence"),
    [
        (0.6, None),
        (0.5, "Training did not raise Recall@1: 0.5000 → 0.5000. Try first:"),
        (0.4, "Training did not raise Recall@1: 0.5000 → 0.4000. Try first:"),
    ],
)
def test_a_run_that_ends_below_its_start_says_what_to_try(recall, sentence, capsys):
    recipe, _ = Recipe(weights="imagenet", steps=0).completed(40)
    reported(recipe, trained={"recall@1": recall})
    out = capsys.readouterr().out
    for words in (sentence or "Training did not", "--steps 500", "--learning_rate 1e-05"):
        assert (words in out) == (sentence is not None), words


@pytest.mark.parametrize(
    ("settings", "num_classes", "advice"),
    [
        ({"learning_rate": 0.1}, 40, ["learning rate, 0.001: leave out", "--loss npair"]),
        ({"learning_rate": 1e-3, "loss": "npair"}, 40, ["--learning_rate 0.0001", "contrastive"]),
        ({"learning_rate": 1e-4, "steps": 0}, 40, ["--steps 500", "--loss npair"]),
        ({"learning_rate": 1e-4}, 5, ["--learning_rate 1e-05", "More classes: 5 are few"]),
    ],
)
def test_advice_depends_on_the_rate_and_the_classes(settings, num_classes, advice):
    recipe, _ = Recipe(**settings).completed(num_classes)
    given = outcome.what_to_try(recipe, num_classes, {})
    assert all(words in sentence for words, sentence in zip(advice, given, strict=True))


def test_a_learned_similarity_that_collapsed_is_stated(capsys):
    recipe, _ = Recipe(loss="pddm", steps=0).completed(40)
    stages = {"untrained": {"recall@1": 0.5, "similarity_auc": 0.5}}
    stages["trained"] = {"recall@1": 0.6, "similarity_auc": 0.51}
    for collapsed in (False, True):
        reported(recipe, **stages, improved=True, similarity_collapsed=collapsed)
        out = capsys.readouterr().out
        assert ("its ROC curve is 0.51" in out) == collapsed
        assert ("More steps: --steps 500" in out) == collapsed
        assert "--learning_rate" not in out  # a lower one would learn it later


def test_a_learned_similarity_is_judged_by_pairs(trained_with_pddm):
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


def test_draws_the_training(tmp_path):
    log, pictures = tmp_path / "epochs.csv", []
    for loss in (1.5, 9.5):
        log.write_text(f"epoch,loss\n0,2.5\n1,{loss}\n")
        outcome.plot_training(log, SCORES | {"trained": {"recall@1": 0.75}}, tmp_path / "x.png")
        assert Image.open(tmp_path / "x.png").size == (1000, 400)
        pictures.append((tmp_path / "x.png").read_bytes())
    assert pictures[0] != pictures[1]
