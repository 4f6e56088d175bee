import dataclasses
import pathlib

import numpy as np
import pytest
from mean_colours import CLASSES, data_of, embedding_of, scores, settings_on_the_page

import pipelines
from tfdml.evaluation import (
    approximate_recall,
    bootstrap_intervals,
    calibrate_threshold,
    clustering,
    clustering_scores,
    load_queries,
    macro_average,
    rates_at_threshold,
    retrieval_scores,
    retrieval_scores_per_query,
    verification_scores,
)
from tfdml.programs import evaluate
from tfdml.runs.scoring import embedded, tasks


def test_queries_search_the_gallery_of_a_dataset_that_has_one(photos, version, monkeypatch):
    folder = pipelines.load("folder", str(photos))
    queries = np.arange(len(folder.test.labels)) % 3 == 0
    apart = dataclasses.replace(
        folder, test=folder.test.subset(queries), gallery=folder.test.subset(~queries)
    )
    monkeypatch.setattr(pipelines, "load", lambda *_, **__: apart)
    content = scores(version, "--report", "page", name="evaluation")
    images, labels = data_of(photos, CLASSES[4:])
    rows = embedding_of(images).numpy()
    expected = retrieval_scores(
        rows[queries],
        labels[queries],
        gallery_embeddings=rows[~queries],
        gallery_labels=labels[~queries],
    )
    assert {name: content["scores"][name] for name in expected} == pytest.approx(expected)
    assert load_queries("runs/colours/evaluation_queries.npz").labels.tolist() == [
        apart.test.labels[i] for i in range(queries.sum())
    ]
    page = pathlib.Path("page", "index.html").read_text()
    assert "all images among themselves, by distance" in page
    changing = {"levels", "mirror", "crops", "boxes"}
    assert not changing & set(settings_on_the_page(pathlib.Path("page", "index.html")))
    assert f"{queries.sum()} queries in a gallery of {(~queries).sum()}" in page
    assert content["images"] == {"queries": queries.sum(), "gallery": (~queries).sum()}
    whole = scores(version, "--split", "all", "--nmi=false", name="evaluation_all")
    assert whole["scores"]["map"] != content["scores"]["map"]


def test_a_threshold_is_calibrated_on_the_training_classes(photos, version, capsys):
    arguments = ["--false_match_rate", 0.2, "--nmi=false"]
    content = scores(version, *arguments, name="evaluation")["verification"]
    test, train = (
        (embedding_of(images).numpy(), labels)
        for images, labels in (data_of(photos, CLASSES[4:]), data_of(photos, CLASSES[:4]))
    )
    expected = verification_scores(*test, false_match_rates=0.2)
    assert content["auc"] == pytest.approx(expected["auc"])
    assert content["true_match_rate"] == pytest.approx(expected["true_match_rates"][0.2])
    threshold = calibrate_threshold(*train, false_match_rate=0.2)
    assert content["calibrated"]["threshold"] == pytest.approx(threshold, rel=1e-6)
    rates = rates_at_threshold(*test, content["calibrated"]["threshold"])
    assert {name: content["calibrated"][name] for name in rates} == pytest.approx(rates)
    assert "With the threshold of the training classes:" in capsys.readouterr().out
    content = scores(version, *arguments, "--split", "train", name="evaluation_train")
    assert "calibrated" not in content["verification"]


def test_verification_needs_pairs(monkeypatch, version, capsys):
    monkeypatch.setattr(tasks, "has_pairs_of_both_kinds", lambda labels: False)
    with pytest.raises(SystemExit, match="2"):
        evaluate.main([str(version), "--false_match_rate", "0.2", "--nmi=false"])
    assert "`false_match_rate` needs images of two classes" in capsys.readouterr().err


def test_the_folder_of_the_training_may_be_spelt_otherwise(photos, version):
    data = ["--dataset", "folder", "--data_dir", f"{photos}/../photos/"]
    content = scores(version, *data, "--false_match_rate", 0.2, "--nmi=false", name="evaluation")
    assert "calibrated" in content["verification"]


@pytest.mark.parametrize("parameters", ["nprobe=1", "nprobe=2"])
def test_an_index_is_compared_with_the_exact_search(parameters, photos, version, capsys):
    arguments = ["--index", "IVF4,Flat", "--index_parameters", parameters, "--nmi=false"]
    content = scores(version, *arguments, name="evaluation")
    assert content["index"] == "IVF4,Flat"
    images, labels = data_of(photos, CLASSES[4:])
    options = {"k": [1, 2, 4, 8], "index": "IVF4,Flat", "parameters": parameters}
    expected = approximate_recall(embedding_of(images).numpy(), labels, **options)
    for name in ("exact", "approximate", "lost", "overlap"):
        found = {int(k): value for k, value in content["approximate"][name].items()}
        assert found == pytest.approx(expected[name]), name
    assert "Approximate search (" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--index", "HNSW32x"], "faiss rejects the index"),
        (["--index", "Flat", "--index_parameters", "nprob=4"], "parameters='nprob=4'"),
        (["--cluster_by", "affinity_propagation"], "takes at most 9 images"),
        (["--index", "IVF64,Flat"], "more cells than images. Received: cells=64, images=20"),
        (["--index", "IVF21,Flat"], "cells=21, images=20"),
    ],
)
def test_what_cannot_be_scored_is_rejected_before_it_embeds(
    arguments, sentence, version, monkeypatch, capsys
):
    monkeypatch.setattr(clustering, "MOST_ROWS", 9)
    monkeypatch.setattr(embedded, "embed", lambda *_: pytest.fail("embedded"))
    with pytest.raises(SystemExit, match="2"):
        evaluate.main([str(version), *arguments])
    assert sentence in capsys.readouterr().err


def test_clusters_are_found_by_affinity_propagation(photos, version):
    images, labels = data_of(photos, CLASSES[4:])
    rows = embedding_of(images).numpy()
    name = "evaluation_cluster_by_affinity_propagation"
    content = scores(version, "--cluster_by", "affinity_propagation", name=name)["scores"]
    expected = clustering_scores(rows, labels, method="affinity_propagation")
    assert {name: content[name] for name in expected} == pytest.approx(expected)


def test_clusters_are_found_with_the_seed_and_restarts_that_are_given(photos, version):
    images, labels = data_of(photos, CLASSES[4:])
    given = scores(version, "--restarts", 3, "--seed", 2, name="evaluation_restarts_3_seed_2")
    expected = clustering_scores(embedding_of(images).numpy(), labels, restarts=3, seed=2)
    assert {name: given["scores"][name] for name in expected} == pytest.approx(expected)


def test_scores_have_intervals_and_means_over_classes(photos, version):
    images, labels = data_of(photos, CLASSES[4:])
    values = retrieval_scores_per_query(embedding_of(images).numpy(), labels)
    content = scores(version, "--nmi=false", "--seed", 2, name="evaluation_seed_2")
    intervals = bootstrap_intervals(values, labels, seed=2)
    assert {name: tuple(ends) for name, ends in content["intervals"].items()} == intervals
    averages = {name: macro_average(of, labels) for name, of in values.items()}
    assert content["macro"] == pytest.approx(averages)
