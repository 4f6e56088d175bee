"""Other views of the images: crops, mirror images, levels and boxes."""

import pathlib

import numpy as np
import pytest
from mean_colours import CLASSES, SIDE, data_of, embedding_of, scores, settings_on_the_page

from tfdml.evaluation import average_views, recall_at_k, retrieval_scores
from tfdml.programs import evaluate


@pytest.mark.parametrize(
    ("arguments", "name", "crops", "mirrors"),
    [
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


@pytest.mark.usefixtures("without_figures")
def test_the_page_states_what_changes_the_embeddings(version):
    folder = pathlib.Path("page")
    options = ["--levels", 1, "--mirror", "--crops", 5]
    name = "evaluation_levels_1_crops_5_mirror"
    scores(version, *options, "--nmi=false", "--report", folder, name=name)
    settings = settings_on_the_page(folder / "index.html")
    assert (settings["levels"], settings["mirror"], settings["crops"]) == ("1", "True", "5")
