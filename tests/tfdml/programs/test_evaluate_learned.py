"""evaluate.py by the similarity that a model learned."""

import pathlib

import keras
import pytest
from small_scores import evaluate_here, evaluation_of, rejection

import pipelines
from tfdml.evaluation import distance_statistics, recall_at_k


@pytest.fixture
def learned(trained_with_pddm, tmp_path, monkeypatch):
    """The version that this run exported; the working folder is an empty one."""
    monkeypatch.chdir(tmp_path)
    return trained_with_pddm / "saved_models" / "small" / "1"


@pytest.fixture(scope="module")
def expected(trained_with_pddm):
    """Recall@1 of the trained model by the learned similarity and by distance; its distances."""
    model = keras.models.load_model(trained_with_pddm / "runs" / "small" / "checkpoint.keras")
    test = pipelines.load("digits").test
    x = model.embed(pipelines.evaluation_batches(test))
    recalls = [
        recall_at_k(x, test.labels, k=1, similarity=similarity)[1]
        for similarity in (model.loss.similarity_layer.matrix, None)
    ]
    assert min(recalls) > 0.3
    assert abs(recalls[0] - recalls[1]) > 0.01
    return recalls, distance_statistics(x, test.labels)


def test_images_are_ranked_by_the_learned_similarity_or_by_distance(learned, expected, capsys):
    recalls, distances = expected
    evaluate_here(learned, "--rank_by", "similarity")
    assert "of digits,\nranked by the learned similarity:" in capsys.readouterr().out
    content = evaluation_of("evaluation_similarity")
    assert content["rank_by"] == "similarity"
    assert "distances" not in content
    assert content["scores"]["recall@1"] == pytest.approx(recalls[0], abs=2e-3)
    evaluate_here(learned)
    content = evaluation_of("evaluation")
    assert content["rank_by"] == "distance"
    assert content["scores"]["recall@1"] == pytest.approx(recalls[1], abs=2e-3)
    found = content["distances"]
    assert found == {name: pytest.approx(value, rel=1e-3) for name, value in distances.items()}
    printed = capsys.readouterr().out
    assert "Distances of all pairs, and their LDA score:" in printed
    for value in found.values():
        assert f"  {value:.4f}" in printed


@pytest.mark.usefixtures("without_figures")
def test_reranking_states_what_is_lost(learned, expected, capsys):
    evaluate_here(learned, "--rerank", "3", "--report", "report")
    content = evaluation_of("evaluation_rerank_3")
    assert (content["rank_by"], content["rerank"]) == ("similarity", 3)
    compared = content["reranking"]
    assert set(compared) == {"queries", "exact", "reranked", "lost"}
    assert compared["queries"] == 224
    assert compared["exact"] == {"recall@1": pytest.approx(expected[0][0], abs=2e-3)}
    assert compared["reranked"] == content["scores"]
    lost = compared["exact"]["recall@1"] - compared["reranked"]["recall@1"]
    assert compared["lost"] == {"recall@1": lost}
    assert lost != 0
    printed = capsys.readouterr().out
    assert "the 3 nearest of each ranked by the learned similarity:" in printed
    assert "Reranked candidates and a ranking of all images, on 224 queries:" in printed
    assert f"lost     {lost:10.4f}" in printed
    page = pathlib.Path("report", "index.html").read_text()
    assert "the 3 nearest by distance, by the learned similarity" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rank_by", "cosine"], ["`rank_by`", "'similarity'", "Received: rank_by=cosine"]),
        (
            ["--rank_by", "distance", "--rerank", "9"],
            ["`rerank`", "Received: rerank=9, rank_by='distance'"],
        ),
        (["--rerank", "0"], ["`rerank`", "Received: rerank=0"]),
        (["--rerank", "224"], ["`rerank`", "Received: rerank=224, images=223"]),
    ],
)
def test_rankings_that_cannot_be_are_rejected(arguments, words, learned):
    message = rejection(learned, "--k", "1", *arguments)
    assert [word for word in words if word not in message] == [], message
    assert not pathlib.Path("runs").exists()
