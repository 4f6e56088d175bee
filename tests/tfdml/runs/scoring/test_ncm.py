import shutil

import numpy as np
import pytest
from mean_colours import CLASSES, data_of, embedding_of, scores

from tfdml.evaluation import (
    few_shot_accuracies,
)
from tfdml.programs import evaluate
from tfdml.runs.scoring import embedded


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
    content = scores(version, *arguments, name="evaluation_ncm_shots_1_unit_means_draws_3_seed_4")
    options = {"shots": 1, "draws": 3, "k": 2, "seed": 4, "renormalize_means": True}
    expected = few_shot_accuracies(rows, labels, **options)
    assert content["scores"] == {"top2": pytest.approx(np.mean(expected[2]), abs=1e-9)}


@pytest.mark.parametrize("task", ["retrieval", "ncm", "one_per_class"])
def test_classes_of_one_image_are_rejected_before_they_are_embedded(
    task, photos, version, tmp_path, monkeypatch, capsys
):
    for folder in photos.iterdir():
        (tmp_path / "singles" / folder.name).mkdir(parents=True)
        shutil.copy(folder / "0.png", tmp_path / "singles" / folder.name)
    monkeypatch.setattr(embedded, "embed", lambda *_: pytest.fail("embedded"))
    data = ["--dataset", "folder", "--data_dir", str(tmp_path / "singles")]
    with pytest.raises(SystemExit, match="2"):
        evaluate.main([task, str(version), *data])
    assert "a class must have 2 images or more" in capsys.readouterr().err
