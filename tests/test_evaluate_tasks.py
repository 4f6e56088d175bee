"""evaluate.py beyond retrieval: class means, zero-shot classes, and other views of the images."""

import dataclasses
import json
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import pipelines
from tfdml.decoding import resize
from tfdml.evaluation import (
    average_views,
    bootstrap_intervals,
    calibrate_threshold,
    clustering_scores,
    few_shot_accuracies,
    load_queries,
    macro_average,
    one_per_class_scores,
    rates_at_threshold,
    recall_at_k,
    retrieval_scores,
    retrieval_scores_per_query,
    verification_scores,
    zero_shot_accuracy,
)
from tfdml.programs import evaluate
from tfdml.runs.scoring import output

SIDE = 8
# The first four train. Each family has a class on both sides, but for the last.
CLASSES = ("a1", "b1", "c1", "c2", "f1", "f2", "f3", "g1", "g2")
PARENTS = {"a1": "A", "f1": "A", "f2": "A", "b1": "B", "f3": "B", "c1": "C", "c2": "C"}
PARENTS |= {"g1": "G", "g2": "G"} | dict.fromkeys("ABCG", "all")


def embedding_of(images):
    """(n, 6): the mean colours of the left and of the right half, two levels of three numbers."""
    halves = images[:, :, : SIDE // 2], images[:, :, SIDE // 2 :]
    return tf.concat([tf.reduce_mean(half, axis=[1, 2]) / 255 for half in halves], axis=1)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Four images of each class, 10 to 13 pixels wide, and their hierarchy."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("tasks") / "photos"
    for number, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        centre = rng.uniform(60, 200, (1, 1, 3))
        for i in range(4):
            pixels = centre + rng.normal(size=(9 + number, 10 + i, 3)) * 40 + rng.normal() * 30
            image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            image.save(folder / name / f"{i}.png")
    lines = "".join(f"{child},{parent}\n" for child, parent in PARENTS.items())
    (folder.parent / "tree.csv").write_text(f"class,parent\n{lines}")
    return folder


@pytest.fixture(scope="module")
def version(photos):
    """A model whose recipe names the photos."""
    version = photos.parent / "saved_models" / "colours" / "1"
    module = tf.Module()
    embed = tf.function(lambda images: {"embedding": embedding_of(images)})
    spec = tf.TensorSpec([None, SIDE, SIDE, 3], tf.float32, name="images")
    tf.saved_model.save(module, str(version), {"embed_images": embed.get_concrete_function(spec)})
    recipe = {"dataset": "folder", "data_dir": str(photos), "embedding_dim": 3}
    (version / "assets.extra").mkdir()
    metadata = {"recipe": {**recipe, "validation_share": 0.0}}
    (version / "assets.extra" / "metadata.json").write_text(json.dumps(metadata))
    return version


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def data_of(photos, names, side=SIDE, part=lambda image: image):
    """Images of classes at one size, and their labels, which are places in `CLASSES`."""
    images, labels = [], []
    for name in names:
        for path in sorted((photos / name).iterdir()):
            images.append(resize(part(np.asarray(Image.open(path))), (side, side, 3)).numpy())
            labels.append(CLASSES.index(name))
    return np.stack(images), np.array(labels)


def scores(version, *arguments, name):
    evaluate.main([str(version), *map(str, arguments)])
    return json.loads(pathlib.Path("runs", "colours", f"{name}.json").read_text())


def settings_on_the_page(path):
    return dict(re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", path.read_text()))


def test_class_means_of_some_images_identify_the_others(photos, version, capsys):
    images, labels = data_of(photos, CLASSES[4:])
    rows = embedding_of(images).numpy()
    content = scores(version, "--task", "ncm", name="evaluation_ncm")
    expected = few_shot_accuracies(rows, labels)
    for k, values in expected.items():
        assert content["scores"][f"top{k}"] == pytest.approx(np.mean(values), abs=1e-9)
        assert content["deviations"][f"top{k}"] == pytest.approx(np.std(values, ddof=1), abs=1e-9)
    assert 0.3 < content["scores"]["top1"] < 1
    assert "mean of half of the images of each class, 10 draws" in capsys.readouterr().out
    arguments = ["--task", "ncm", "--shots", 1, "--draws", 3, "--k", 2, "--seed", 4]
    arguments += ["--renormalize_means"]
    content = scores(version, *arguments, name="evaluation_ncm_shots_1_unit_means")
    options = {"shots": 1, "draws": 3, "k": 2, "seed": 4, "renormalize_means": True}
    expected = few_shot_accuracies(rows, labels, **options)
    assert content["scores"] == {"top2": pytest.approx(np.mean(expected[2]), abs=1e-9)}


KINDS = {"against": "before the own one", "expected": "in random order", "as_one": "as one class"}


def test_test_classes_are_placed_by_the_means_of_training_classes(photos, version, capsys):
    tree = photos.parent / "tree.csv"
    arguments = ["--task", "zero_shot", "--hierarchy", tree, "--k", "[1, 2]"]
    content = scores(version, *arguments, name="evaluation_zero_shot_tree")
    train, test = (data_of(photos, names) for names in (CLASSES[:4], CLASSES[4:]))
    hierarchy = {CLASSES.index(n) if n in CLASSES else n: above for n, above in PARENTS.items()}
    rows = [embedding_of(images).numpy() for images, _ in (train, test)]
    data = (rows[0], train[1], hierarchy, rows[1], test[1])
    for kind, words in KINDS.items():
        expected = zero_shot_accuracy(*data, k=(1, 2), equal_means=kind)
        found = content["unseen"][words]
        assert found == {f"top{k}": pytest.approx(v, abs=1e-9) for k, v in expected.items()}
        assert content["unseen"][f"{words}, with kin"].keys() == found.keys()
    assert content["scores"] == content["unseen"]["in random order"]
    assert content["classes"] == {"known": 4, "unseen": 5, "unseen_with_kin": 3}
    assert (
        "Of 5 unseen classes 3 have related ones among 4 known classes." in capsys.readouterr().out
    )
    placed = ["--placement.ancestors", "parent", "--placement.weights", "depth"]
    name = "evaluation_zero_shot_tree_ancestors_parent_weights_depth"
    content = scores(version, *arguments, *placed, name=name)
    expected = zero_shot_accuracy(*data, k=1, equal_means="expected", ancestors="parent")
    assert content["scores"]["top1"] == pytest.approx(expected[1], abs=1e-9)


def test_classes_are_held_out_of_each_parent(photos, version):
    tree = photos.parent / "tree.csv"
    content = scores(
        version,
        *("--task", "zero_shot", "--hierarchy", tree, "--unseen_share", 0.5, "--k", 1),
        name="evaluation_zero_shot_tree_unseen_0.5",
    )
    # Of f1 and f2, of f3 alone, and of g1 and g2.
    known, unseen = (data_of(photos, names) for names in (("f1", "f3", "g1"), ("f2", "g2")))
    hierarchy = {CLASSES.index(n) if n in CLASSES else n: above for n, above in PARENTS.items()}
    rows = [embedding_of(images).numpy() for images, _ in (known, unseen)]
    expected = zero_shot_accuracy(rows[0], known[1], hierarchy, rows[1], unseen[1], k=1)
    assert content["scores"] == {"top1": pytest.approx(expected[1], abs=1e-9)}
    assert content["classes"] == {"known": 3, "unseen": 2, "unseen_with_kin": 2}


def test_classes_without_related_ones_are_rejected_with_advice(photos, version, tmp_path, capsys):
    parents = {name: "old" if name in CLASSES[:4] else "new" for name in CLASSES}
    lines = "".join(f"{child},{parent}\n" for child, parent in parents.items())
    (tmp_path / "tree.csv").write_text(f"class,parent\n{lines}old,all\nnew,all\n")
    with pytest.raises(SystemExit, match="2"):
        evaluate.main([str(version), "--task", "zero_shot", "--hierarchy", "tree.csv"])
    assert (
        "shares a non-root ancestor with a known class: give `unseen_share`"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "name", "crops", "mirrors"),
    [
        (["--crops", 5], "crops_5", 5, False),
        (["--crops", 10], "crops_10", 5, True),
        (["--mirror"], "mirror", 1, True),
        (["--crops", 5, "--mirror", "--batch_size", 3], "crops_5_mirror", 5, True),
    ],
)
def test_embeddings_of_views_are_averaged(photos, version, arguments, name, crops, mirrors):
    # 9 pixels a side: the crops begin at 0 or 1, that of the centre at 0.
    images, labels = data_of(photos, CLASSES[4:], SIDE if crops == 1 else 9)
    corners = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 0)][:crops]
    views = [images[:, y : y + SIDE, x : x + SIDE] for y, x in corners]
    views += [view[:, :, ::-1] for view in views] if mirrors else []
    rows = average_views(np.stack([embedding_of(view) for view in views]), levels=2)
    content = scores(version, *arguments, "--nmi=false", "--k=1", name=f"evaluation_{name}")
    assert content["scores"]["recall@1"] == recall_at_k(rows, labels, k=1)[1]
    distances = np.linalg.norm(rows[:, None] - rows[None, :], axis=2)
    mean = distances[labels[:, None] != labels].mean()
    assert content["distances"]["negative_mean"] == pytest.approx(mean, rel=1e-4)


def test_one_image_of_each_class_is_the_gallery(photos, version, capsys):
    images, labels = data_of(photos, CLASSES[4:])
    rows = embedding_of(images).numpy()
    arguments = ["--task", "one_per_class", "--draws", 4, "--seed", 3]
    content = scores(version, *arguments, name="evaluation_one_per_class")
    expected = one_per_class_scores(rows, labels, draws=4, seed=3)
    assert {
        name: (value, content["deviations"][name]) for name, value in content["scores"].items()
    } == {name: pytest.approx(values, abs=1e-9) for name, values in expected.items()}
    assert "among one image of each class, 4 draws" in capsys.readouterr().out


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


def test_an_index_is_compared_with_the_exact_search(version, capsys):
    arguments = ["--index", "IVF2,Flat", "--index_parameters", "nprobe=2", "--nmi=false"]
    content = scores(version, *arguments, name="evaluation")
    assert content["index"] == "IVF2,Flat"
    assert set(content["approximate"]["lost"].values()) == {0.0}
    assert "Approximate search (" in capsys.readouterr().out


def test_clusters_are_found_by_affinity_propagation(photos, version):
    images, labels = data_of(photos, CLASSES[4:])
    rows = embedding_of(images).numpy()
    content = scores(version, "--cluster_by", "affinity_propagation", name="evaluation")["scores"]
    expected = clustering_scores(rows, labels, method="affinity_propagation")
    assert {name: content[name] for name in expected} == pytest.approx(expected)


def test_scored_runs_are_compared(version, capsys):
    scores(version, "--nmi=false", name="evaluation")
    scores(version, "--nmi=false", "--crops", 5, "--out", "crops.json", name="evaluation")
    scores(version, "--nmi=false", "--split", "all", name="evaluation_all")
    capsys.readouterr()
    evaluate.main(["--compare", "runs/colours", "crops.json"])
    assert capsys.readouterr().out.startswith("20 images of 5 classes:")
    with pytest.raises(SystemExit, match="2"):
        evaluate.main(["--compare", "runs/colours", str(version)])
    assert "needs runs with scores of their own" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        evaluate.main(["--compare", str(version.parent / "2"), "crops.json"])
    assert "does not exist" in capsys.readouterr().err
    scores(version, "--task", "ncm", "--out", "crops.json", name="evaluation")
    with pytest.raises(SystemExit, match="2"):
        evaluate.main(["--compare", "runs/colours", "crops.json"])
    assert "crops.json has no values of queries" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        evaluate.main(["--compare", "runs/colours", "runs/colours/evaluation_all.json"])
    assert "must be scored on the same images: classes differs" in capsys.readouterr().err


def test_other_images_of_the_same_names_are_not_compared(photos, version, tmp_path, capsys):
    for path in photos.rglob("*.png"):
        copy = tmp_path / "others" / path.parent.name / f"other_{path.name}"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    scores(version, "--nmi=false", name="evaluation")
    data = ["--dataset", "folder", "--data_dir", tmp_path / "others", "--nmi=false"]
    scores(version, *data, name="evaluation_folder_others")
    with pytest.raises(SystemExit, match="2"):
        evaluate.main(["--compare", "runs/colours", "runs/colours/evaluation_folder_others.json"])
    assert "must be scored on the same images: content differs" in capsys.readouterr().err


def test_the_page_states_what_changes_the_embeddings(version):
    folder = pathlib.Path("page")
    options = ["--levels", 1, "--mirror", "--crops", 5]
    name = "evaluation_levels_1_crops_5_mirror"
    scores(version, *options, "--nmi=false", "--report", folder, name=name)
    settings = settings_on_the_page(folder / "index.html")
    assert (settings["levels"], settings["mirror"], settings["crops"]) == ("1", "True", "5")


def test_the_folder_of_the_training_may_be_spelt_otherwise(photos, version):
    data = ["--dataset", "folder", "--data_dir", f"{photos}/../photos/"]
    content = scores(version, *data, "--false_match_rate", 0.2, "--nmi=false", name="evaluation")
    assert "calibrated" in content["verification"]


def test_scores_have_intervals_and_means_over_classes(photos, version):
    images, labels = data_of(photos, CLASSES[4:])
    values = retrieval_scores_per_query(embedding_of(images).numpy(), labels)
    content = scores(version, "--nmi=false", "--seed", 2, name="evaluation")
    intervals = bootstrap_intervals(values, labels, seed=2)
    assert {name: tuple(ends) for name, ends in content["intervals"].items()} == intervals
    averages = {name: macro_average(of, labels) for name, of in values.items()}
    assert content["macro"] == pytest.approx(averages)


def test_numbers_that_json_has_not_are_null():
    content = {"lda": np.inf, "all": [1.0, -np.inf, {"of": float("nan")}], 2: "text", "no": None}
    assert output.finite(content) == {
        "lda": None,
        "all": [1.0, None, {"of": None}],
        "2": "text",
        "no": None,
    }


def test_the_first_levels_are_scored(photos, version):
    images, labels = data_of(photos, CLASSES[4:])
    rows = embedding_of(images).numpy()[:, :3]
    content = scores(version, "--levels", 1, "--nmi=false", name="evaluation_levels_1")
    assert content["scores"] == retrieval_scores(rows, labels)
    assert content["scored_levels"] == 1
    assert "levels" not in content


def test_what_is_in_the_boxes_is_scored(photos, version, tmp_path):
    paths = sorted(path.relative_to(photos) for path in photos.rglob("*.png"))
    lines = "".join(f"{path},1,2,7,9\n" for path in paths)
    (tmp_path / "boxes.csv").write_text(f"path,x1,y1,x2,y2\n{lines}")
    images, labels = data_of(photos, CLASSES[4:], part=lambda image: image[2:9, 1:7])
    content = scores(version, "--boxes", "boxes.csv", "--nmi=false", name="evaluation_in_boxes")
    assert content["scores"] == retrieval_scores(embedding_of(images).numpy(), labels)
    (tmp_path / "boxes.csv").write_text(f"path,x1,y1,x2,y2\n{lines.replace('1,2,7,9', '1,2,7,99')}")
    with pytest.raises(SystemExit, match="2"):
        evaluate.main([str(version), "--boxes", "boxes.csv"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "classify"], "Unknown task 'classify'. Available: ncm, one_per_class"),
        (["--shots", "2"], "`shots` is an option of the task ncm. Received: task='retrieval'"),
        (["--task", "ncm", "--hierarchy", "x"], "`hierarchy` is an option of the task zero_shot"),
        (["--task", "ncm", "--report", "folder"], "`report` is an option of the task retrieval"),
        (["--task=ncm", "--rerank", "9"], "`rerank` is an option of the task retrieval"),
        (["--renormalize_means"], "is an option of the task ncm and zero_shot"),
        (["--task", "ncm", "--shots", "0"], "`shots` must be > 0. Received: shots=0"),
        (["--task", "ncm", "--k", "6"], "`k` must not exceed the means. Received: k=6, means=5"),
        (["--task", "zero_shot"], "`hierarchy` must be given for a dataset without super-classes"),
        (
            ["--task", "zero_shot", "--split", "all"],
            "`unseen_share` must be given, except for the split test or validation",
        ),
        (["--task", "zero_shot", "--unseen_share", "1"], "`unseen_share` must be > 0 and < 1"),
        (
            ["--task", "zero_shot", "--placement.ancestor", "x"],
            "`placement` has no option 'ancestor'. Did you mean 'ancestors'?",
        ),
        (["--false_match_rate", "1"], "`false_match_rate` must be >= 0 and < 1"),
        (["--index", "HNSW32", "--rank_by", "similarity"], "`index` is for `rank_by` distance"),
        (["--false_match_rate", "0", "--task", "ncm"], "is an option of the task retrieval"),
        (["--cluster_by", "affinity_propagation", "--nmi=false"], "are of the clusters of `nmi`"),
        (["--index_parameters", "nprobe=2"], "`index_parameters` are those of an `index`"),
        (["--cluster_by", "affinity_propagation", "--restarts", "2"], "`restarts` are of k-means"),
        (["--cluster_by", "means"], "`cluster_by` must be one of"),
        (["--crops", "2"], "`crops` must be one of 1, 5, 10. Received: crops=2"),
        (["--crops", "10", "--mirror"], "10 `crops` have the mirror images already"),
        (
            ["--crops", "5", "--rank_by", "similarity"],
            "are for `rank_by` distance",
        ),
        (["--levels", "3"], "`levels` must not exceed those of the model. .*levels=3, of_model=2"),
        (["--batch_size", "0"], "`batch_size` must be > 0. Received: batch_size=0"),
    ],
)
def test_rejects_what_does_not_go_together(arguments, message, version, capsys):
    with pytest.raises(SystemExit, match="2"):
        evaluate.main([str(version), *arguments])
    assert re.search(message, capsys.readouterr().err)


def test_the_task_is_the_first_word_or_an_option():
    for words in (["ncm", "x"], ["x", "--task", "ncm"], ["--task=ncm", "x"]):
        assert evaluate.task_of(words) == ("ncm", ["x"])
    assert evaluate.task_of(["x", "--k", "5"]) == ("retrieval", ["x", "--k", "5"])
    for words in (["compare", "a", "b"], ["--compare", "a", "b"], ["a", "b", "--compare"]):
        assert evaluate.task_of(words) == ("compare", ["a", "b"])


def test_a_misspelt_task_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        evaluate.main(["retreival", "saved_models/x", "--k", "5"])
    expected = (
        "tfdml-evaluate: error: Unknown task 'retreival'. Did you mean 'retrieval'? Available: "
    )
    assert capsys.readouterr().err.startswith(expected)
    assert evaluate.task_of([str(tmp_path), "more"]) == ("retrieval", [str(tmp_path), "more"])


def collection_of(photos, version, folder, names=CLASSES[4:]):
    """The photos of classes, embedded; the first image of each is missing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tfdml.serving.exported import fingerprint

    pixels, labels = data_of(photos, names)
    rows = embedding_of(pixels).numpy()
    paths = [str(path) for name in names for path in sorted((photos / name).iterdir())]
    kept = [i for i in range(len(rows)) if i % 4]
    listed = pa.table(
        {"path": [paths[i] for i in kept], "label": [CLASSES[labels[i]] for i in kept]}
    )
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows[kept].reshape(-1)), rows.shape[1])
    shard = {"id": np.arange(len(kept)), "path": listed["path"], "embedding": vectors}
    shard |= {"label": listed["label"], "error": pa.nulls(len(kept), pa.string())}
    (folder / "shards").mkdir(parents=True)
    pq.write_table(listed, folder / "list.parquet")
    pq.write_table(pa.table(shard), folder / "shards" / "00000.parquet")
    manifest = {"format": 1, "model": fingerprint(version), "dim": rows.shape[1], "list": "a"}
    manifest |= {"images": len(kept), "shard_size": 100, "shards": 1}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return rows, labels, kept


def test_images_search_in_a_collection(photos, version, tmp_path, capsys):
    from tfdml.scale.collection import Collection
    from tfdml.scale.indexing import build

    rows, labels, kept = collection_of(photos, version, tmp_path / "large")
    arguments = ["--gallery", tmp_path / "large", "--k", "[1, 5]"]
    content = scores(version, *arguments, name="evaluation_in_large")
    # An image that is in the gallery does not find itself there: as among all, without the others.
    groups = np.arange(len(rows))
    expected = retrieval_scores(
        rows,
        labels,
        (1, 5),
        gallery_embeddings=rows[kept],
        gallery_labels=labels[kept],
        groups=groups,
        gallery_groups=groups[kept],
    )
    assert content["scores"] == pytest.approx(expected, abs=1e-6)
    assert content["images"] == {"queries": 20, "gallery": 15}
    assert f"in the gallery {tmp_path / 'large'}" in capsys.readouterr().out
    build(Collection(tmp_path / "large"), "Flat")
    arguments += ["--index", "stored"]
    content = scores(version, *arguments, name="evaluation_in_large_stored")
    for name in ("recall@1", "recall@5", "map@r"):
        assert content["scores"][name] == pytest.approx(expected[name], abs=1e-6)
    assert set(content["through_index"]["lost"].values()) == {0.0}
    assert "The index and an exact search, on 20 queries" in capsys.readouterr().out


def test_an_image_behind_a_link_does_not_find_itself_in_a_collection(photos, version, tmp_path):
    (tmp_path / "linked").symlink_to(photos)
    collection_of(tmp_path / "linked", version, tmp_path / "large")
    arguments = ["--gallery", tmp_path / "large", "--k", "[1]"]
    absolute, relative = (
        scores(version, "--data_dir", folder, *arguments, name="evaluation_in_large")
        for folder in (tmp_path / "linked", "linked")
    )
    assert relative["scores"] == absolute["scores"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--crops", "5"], "leave out `crops`"),
        (["--rank_by", "similarity"], "leave out `rank_by`"),
        (["--index", "HNSW32"], "the `index` of a `gallery` is `stored` with it"),
        (["--index", "stored"], "there is no index at"),
        (["--false_match_rate", "0.1"], "`false_match_rate` does not go with a `gallery`"),
        (["--k", "16"], "`k` must not exceed the neighbours. Received: k=16, neighbours=15"),
    ],
)
def test_rejects_what_a_collection_cannot_do(photos, version, tmp_path, capsys, arguments, message):
    collection_of(photos, version, tmp_path / "large")
    with pytest.raises(SystemExit):
        evaluate.main([str(version), "--gallery", str(tmp_path / "large"), *arguments])
    assert message in capsys.readouterr().err


def test_rejects_a_collection_of_other_classes_or_another_model(photos, version, tmp_path, capsys):
    collection_of(photos, version, tmp_path / "other", names=CLASSES[:4])
    with pytest.raises(SystemExit):
        evaluate.main([str(version), "--gallery", str(tmp_path / "other")])
    assert "some of the classes must be labels of" in capsys.readouterr().err
    manifest = tmp_path / "other" / "manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**content, "model": "0" * 64}))
    with pytest.raises(SystemExit):
        evaluate.main([str(version), "--gallery", str(tmp_path / "other")])
    assert "must have been made by this model" in capsys.readouterr().err
