import dataclasses
import pathlib
import shutil

import numpy as np
import pytest
from mean_colours import CLASSES, PARENTS, rejection, scores, settings_on_the_page

import pipelines
from tfdml import evaluation
from tfdml.evaluation import clusters, ranking, retrieval
from tfdml.runs import scoring
from tfdml.runs.scoring import tasks

UNSEEN = {"against": "before the own one", "expected": "in random order", "as_one": "as one class"}
HIERARCHY = {CLASSES.index(n) if n in CLASSES else n: above for n, above in PARENTS.items()}


@pytest.fixture
def without_embedding(monkeypatch):
    monkeypatch.setattr(scoring, "embed", lambda *_: pytest.fail("embedded"))


@pytest.mark.usefixtures("without_figures")
def test_queries_search_the_gallery_of_a_dataset_that_has_one(
    photos, version, rows_of, monkeypatch
):
    folder, (rows, labels) = pipelines.load("folder", str(photos)), rows_of()
    queries = np.arange(len(labels)) % 3 == 0
    split = {"test": folder.test.subset(queries), "gallery": folder.test.subset(~queries)}
    apart = dataclasses.replace(folder, **split)
    monkeypatch.setattr(pipelines, "load", lambda *_, **__: apart)
    content = scores(version, "--report", "page", name="evaluation")
    gallery = {"gallery_embeddings": rows[~queries], "gallery_labels": labels[~queries]}
    expected = evaluation.retrieval_scores(rows[queries], labels[queries], **gallery)
    assert {name: content["scores"][name] for name in expected} == pytest.approx(expected)
    assert content["distances"] == pytest.approx(evaluation.distance_statistics(rows, labels))
    found = evaluation.load_queries("runs/colours/evaluation_queries.npz").labels
    assert found.tolist() == split["test"].labels.tolist()
    path = pathlib.Path("page", "index.html")
    assert "all images among themselves, by distance" in path.read_text()
    assert not {"levels", "mirror", "crops", "boxes"} & set(settings_on_the_page(path))
    assert f"{queries.sum()} queries in a gallery of {(~queries).sum()}" in path.read_text()
    assert content["images"] == {"queries": queries.sum(), "gallery": (~queries).sum()}
    whole = scores(version, "--split", "all", "--nmi=false", name="evaluation_all")
    assert whole["scores"]["map"] != content["scores"]["map"]


@pytest.mark.usefixtures("without_figures")
def test_all_pairs_of_images_are_multiplied_once(version, monkeypatch):
    ranking_of, queries = ranking.ranking_of, []

    def counted(search, *arguments, **options):
        queries.append(len(search.kept))
        return ranking_of(search, *arguments, **options)

    monkeypatch.setattr(ranking, "ranking_of", counted)
    monkeypatch.setattr(retrieval, "ranking_of", counted)
    monkeypatch.setattr(tasks, "_parts", lambda *_: {})
    options = ["--false_match_rate", 0.2, "--split", "train", "--report", "page"]
    scores(version, *options, name="evaluation_train")
    assert [count for count in queries if count == 16] == [16]


def test_a_threshold_is_calibrated_on_the_training_classes(photos, version, rows_of, capsys):
    data = ["--dataset", "folder", "--data_dir", f"{photos}/../photos/"]
    arguments = [*data, "--false_match_rate", 0.2, "--nmi=false"]
    content = scores(version, *arguments, name="evaluation")["verification"]
    test, train = rows_of(), rows_of(CLASSES[:4])
    expected = evaluation.verification_scores(*test, false_match_rates=0.2)
    assert content["auc"] == pytest.approx(expected["auc"])
    assert content["true_match_rate"] == pytest.approx(expected["true_match_rates"][0.2])
    threshold = evaluation.calibrate_threshold(*train, false_match_rate=0.2)
    assert content["calibrated"]["threshold"] == pytest.approx(threshold, rel=1e-6)
    rates = evaluation.rates_at_threshold(*test, content["calibrated"]["threshold"])
    assert {name: content["calibrated"][name] for name in rates} == pytest.approx(rates)
    assert "With the threshold of the training classes:" in capsys.readouterr().out
    content = scores(version, *arguments, "--split", "train", name="evaluation_train")
    assert "calibrated" not in content["verification"]


def test_an_index_is_compared_with_the_exact_search(version, rows_of, capsys):
    parameters = "nprobe=2"
    arguments = ["--index", "IVF4,Flat", "--index_parameters", parameters, "--nmi=false"]
    content = scores(version, *arguments, name="evaluation")
    options = {"k": [1, 2, 4, 8], "index": "IVF4,Flat", "parameters": parameters}
    expected = evaluation.approximate_recall(*rows_of(), **options)
    for name in ("exact", "approximate", "lost", "overlap"):
        found = {int(k): value for k, value in content["approximate"][name].items()}
        assert found == pytest.approx(expected[name]), name
    assert "Approximate search (" in capsys.readouterr().out


PLACED = ["--task", "zero_shot", "--hierarchy", "{tree}"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--index", "HNSW32x"], "faiss rejects the index"),
        (["--index", "Flat", "--index_parameters", "nprob=4"], "parameters='nprob=4'"),
        (["--cluster_by", "affinity_propagation"], "takes at most 9 images"),
        (["--index", "IVF64,Flat"], "more cells than images. Received: cells=64, images=20"),
        (["--index", "IVF21,Flat"], "cells=21, images=20"),
        (["--levels", "3"], "exceed those of the model. Received: levels=3, model_levels=2"),
        (["--task", "zero_shot"], "`hierarchy` must be given for a dataset without super-classes"),
        (["--task", "zero_shot", "--split", "all"], "`unseen_share` must be given, except for"),
        (["--task", "open_set"], "8 classes or more must have 2 images or more. Received: classes"),
        (["--task", "ncm", "--k", "6"], "`k` must not exceed the means. Received: k=6, means=5"),
        ([*PLACED, "--placement.ancestors", "x"], "`ancestors` must be one of 'all', 'parent'"),
        ([*PLACED, "--placement.weights", "x"], "`weights` must be one of 'equal', 'depth'"),
        ([*PLACED, "--placement.include_roots", "false"], "must have an ancestor with training"),
    ],
)
@pytest.mark.usefixtures("without_embedding")
def test_what_cannot_be_scored_is_rejected_before_it_embeds(
    arguments, sentence, version, monkeypatch
):
    monkeypatch.setattr(clusters, "MOST_ROWS", 9)
    tree = version.parents[2] / "tree.csv"
    assert sentence in rejection(version, *(word.format(tree=tree) for word in arguments))


@pytest.mark.usefixtures("without_embedding")
def test_verification_needs_pairs(monkeypatch, version):
    monkeypatch.setattr(tasks, "has_pairs_of_both_kinds", lambda labels: False)
    sentence = rejection(version, "--false_match_rate", "0.2", "--nmi=false")
    assert "`false_match_rate` needs images of two classes" in sentence


@pytest.mark.parametrize("task", ["retrieval", "ncm", "one_per_class"])
@pytest.mark.usefixtures("without_embedding")
def test_classes_of_one_image_are_rejected(task, photos, version, tmp_path):
    for folder in photos.iterdir():
        (tmp_path / "singles" / folder.name).mkdir(parents=True)
        shutil.copy(folder / "0.png", tmp_path / "singles" / folder.name)
    data = ["--dataset", "folder", "--data_dir", tmp_path / "singles"]
    assert "a class must have 2 images or more" in rejection(version, "--task", task, *data)


@pytest.mark.parametrize(
    ("arguments", "name", "options"),
    [
        (["--restarts", 3, "--seed", 2], "restarts_3_seed_2", {"restarts": 3, "seed": 2}),
        (
            ["--cluster_by", "affinity_propagation"],
            "cluster_by_affinity_propagation",
            {"method": "affinity_propagation"},
        ),
    ],
)
def test_clusters_are_found_as_asked(arguments, name, options, version, rows_of):
    content = scores(version, *arguments, name=f"evaluation_{name}")["scores"]
    expected = evaluation.clustering_scores(*rows_of(), **options)
    assert {name: content[name] for name in expected} == pytest.approx(expected)


def test_scores_have_intervals_and_means_over_classes(version, rows_of):
    rows, labels = rows_of()
    values = evaluation.retrieval_scores_per_query(rows, labels)
    content = scores(version, "--nmi=false", "--seed", 2, name="evaluation_seed_2")
    intervals = evaluation.bootstrap_intervals(values, labels, seed=2)
    assert {name: tuple(ends) for name, ends in content["intervals"].items()} == intervals
    averages = {name: evaluation.macro_average(of, labels) for name, of in values.items()}
    assert content["macro"] == pytest.approx(averages)


def test_one_image_of_each_class_is_the_gallery(version, rows_of, capsys):
    arguments = ["--task", "one_per_class", "--draws", 4, "--seed", 3]
    content = scores(version, *arguments, name="evaluation_one_per_class_draws_4_seed_3")
    expected = evaluation.one_per_class_scores(*rows_of(), draws=4, seed=3)
    for name, values in expected.items():
        assert (content["scores"][name], content["deviations"][name]) == pytest.approx(values)
    assert "among one image of each class, 4 draws" in capsys.readouterr().out


def test_class_means_of_some_images_identify_the_others(version, rows_of, capsys):
    content = scores(version, "--task", "ncm", name="evaluation_ncm")
    for k, values in evaluation.few_shot_accuracies(*rows_of()).items():
        assert content["scores"][f"top{k}"] == pytest.approx(np.mean(values))
        assert content["deviations"][f"top{k}"] == pytest.approx(np.std(values, ddof=1))
    assert "mean of half of the images of each class, 10 draws" in capsys.readouterr().out
    options = {"shots": 1, "draws": 3, "k": 2, "seed": 4, "renormalize_means": True}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    name = "evaluation_ncm_shots_1_unit_means_draws_3_seed_4"
    content = scores(version, "--task", "ncm", *arguments, name=name)
    expected = np.mean(evaluation.few_shot_accuracies(*rows_of(), **options)[2])
    assert content["scores"] == {"top2": pytest.approx(expected)}


def test_test_classes_are_placed_by_the_means_of_training_classes(photos, version, rows_of, capsys):
    arguments = ["--task", "zero_shot", "--hierarchy", photos.parent / "tree.csv", "--k", "[1, 2]"]
    content = scores(version, *arguments, name="evaluation_zero_shot_tree")
    data = (*rows_of(CLASSES[:4]), HIERARCHY, *rows_of())
    for kind, words in UNSEEN.items():
        expected = evaluation.zero_shot_accuracy(*data, k=(1, 2), equal_means=kind)
        found = content["unseen"][words]
        assert found == {f"top{k}": pytest.approx(v, abs=1e-9) for k, v in expected.items()}
        assert content["unseen"][f"{words}, with kin"].keys() == found.keys()
    assert content["scores"] == content["unseen"]["in random order"]
    assert content["classes"] == {"known": 4, "unseen": 5, "unseen_with_kin": 3}
    printed = capsys.readouterr().out
    assert "on 20 images of 5 classes (test)" in printed
    assert "Of 5 unseen classes 3 have related ones among 4 known classes." in printed
    placed = ["--placement.ancestors", "parent", "--placement.weights", "depth"]
    name = "evaluation_zero_shot_tree_ancestors_parent_weights_depth"
    content = scores(version, *arguments, *placed, name=name)
    placed = {"equal_means": "expected", "ancestors": "parent"}
    expected = evaluation.zero_shot_accuracy(*data, k=1, **placed)
    assert content["scores"]["top1"] == pytest.approx(expected[1], abs=1e-9)


def test_classes_are_held_out_of_each_parent(photos, version, rows_of):
    arguments = ["--task", "zero_shot", "--hierarchy", photos.parent / "tree.csv"]
    arguments += ["--unseen_share", 0.5, "--k", 1]
    content = scores(version, *arguments, name="evaluation_zero_shot_tree_unseen_0.5")
    # Of f1 and f2, of f3 alone, and of g1 and g2.
    data = (*rows_of(("f1", "f3", "g1")), HIERARCHY, *rows_of(("f2", "g2")))
    expected = evaluation.zero_shot_accuracy(*data, k=1)
    assert content["scores"] == {"top1": pytest.approx(expected[1], abs=1e-9)}
    assert content["classes"] == {"known": 3, "unseen": 2, "unseen_with_kin": 2}


def test_classes_without_related_ones_are_rejected_with_advice(version, tmp_path):
    parents = {name: "old" if name in CLASSES[:4] else "new" for name in CLASSES}
    lines = "".join(f"{child},{parent}\n" for child, parent in parents.items())
    (tmp_path / "tree.csv").write_text(f"class,parent\n{lines}old,all\nnew,all\n")
    sentence = rejection(version, "--task", "zero_shot", "--hierarchy", "tree.csv")
    assert "shares a non-root ancestor with a known class: give `unseen_share`" in sentence
