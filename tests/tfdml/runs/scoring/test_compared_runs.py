import pytest
from mean_colours import scores

from tfdml.programs import evaluate


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
    assert "must be scored on the same images: queries differs" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "more"), [("other_{}", b""), ("{}", b"more")])
def test_other_images_of_the_same_classes_are_not_compared(
    name, more, photos, version, tmp_path, capsys
):
    for path in photos.rglob("*.png"):
        copy = tmp_path / "others" / path.parent.name / name.format(path.name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes() + more)
    scores(version, "--nmi=false", name="evaluation")
    data = ["--dataset", "folder", "--data_dir", tmp_path / "others", "--nmi=false"]
    scores(version, *data, name="evaluation_folder_others")
    with pytest.raises(SystemExit, match="2"):
        evaluate.main(["--compare", "runs/colours", "runs/colours/evaluation_folder_others.json"])
    assert "must be scored on the same images: content differs" in capsys.readouterr().err
