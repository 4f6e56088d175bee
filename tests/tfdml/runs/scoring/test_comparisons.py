import pytest
from mean_colours import rejection, scores

from tfdml.programs import evaluate


def test_scored_runs_are_compared(version, capsys):
    scores(version, "--nmi=false", name="evaluation")
    scores(version, "--nmi=false", "--crops", 5, "--out", "crops.json", name="evaluation")
    scores(version, "--nmi=false", "--split", "all", name="evaluation_all")
    capsys.readouterr()
    evaluate.main(["compare", "runs/colours", "crops.json"])
    assert capsys.readouterr().out.startswith("20 images of 5 classes:")
    scores(version, "--task", "ncm", "--out", "crops.json", name="evaluation")
    missing = "crops.json has no values of queries"
    assert missing in rejection("compare", "runs/colours", "crops.json")
    other = rejection("compare", "runs/colours", "runs/colours/evaluation_all.json")
    assert "must be scored on the same images: queries differs" in other


@pytest.mark.parametrize(("name", "more"), [("other_{}", b""), ("{}", b"more")])
def test_other_images_of_the_same_classes_are_not_compared(name, more, photos, version, tmp_path):
    for path in photos.rglob("*.png"):
        copy = tmp_path / "others" / path.parent.name / name.format(path.name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes() + more)
    scores(version, "--nmi=false", name="evaluation")
    data = ["--dataset", "folder", "--data_dir", tmp_path / "others", "--nmi=false"]
    scores(version, *data, name="evaluation_folder_others")
    other = rejection("compare", "runs/colours", "runs/colours/evaluation_folder_others.json")
    assert "must be scored on the same images: content differs" in other
