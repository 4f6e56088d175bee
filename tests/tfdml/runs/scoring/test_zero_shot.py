import pytest
from mean_colours import CLASSES, PARENTS, data_of, embedding_of, scores

from tfdml.evaluation import zero_shot_accuracy
from tfdml.programs import evaluate
from tfdml.runs.scoring import embedded

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


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("ancestors", "parents", "`ancestors` must be one of 'all', 'parent'"),
        ("weights", "heights", "`weights` must be one of 'equal', 'depth'"),
        ("include_roots", "false", "must have an ancestor with training classes"),
    ],
)
def test_a_placement_is_rejected_before_images_are_embedded(
    option, value, expected, photos, version, capsys, monkeypatch
):
    tree = photos.parent / "tree.csv"
    monkeypatch.setattr(embedded, "embed", lambda *_: pytest.fail("embeds"))
    arguments = [str(version), "--task", "zero_shot", "--hierarchy", str(tree)]
    with pytest.raises(SystemExit, match="2"):
        evaluate.main([*arguments, f"--placement.{option}", value])
    assert expected in capsys.readouterr().err


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
