import dataclasses
import types

import numpy as np
import pytest
from PIL import Image

import pipelines
from tfdml.runs.scoring.scored_images import load_images, training_split
from tfdml.runs.scoring.scored_model import ScoredModel
from tfdml.runs.task_options import Retrieval


def test_training_classes_are_those_that_a_run_without_single_images_had():
    labels = np.array([0, 0, 1, 2, 2, 3, 3, 4])
    train, test = (pipelines.Split(np.zeros((8, 2, 2, 1), np.uint8), labels + n) for n in (0, 9))
    dataset = pipelines.Dataset("photos", train, test, image_size=(2, 2, 1))
    model = types.SimpleNamespace(was_trained_on=lambda _: True, recipe={"validation_share": 0.34})
    found = training_split(Retrieval("x", split="test"), model, dataset)
    assert found.labels.tolist() == [0, 0, 2, 2]
    few = dataclasses.replace(dataset, train=train.subset([0, 1, 2, 3]))
    assert training_split(Retrieval("x", split="test"), model, few) is None


def test_copies_among_the_images_to_score_are_reported(tmp_path):
    for name, grey in {"a/1": 1, "a/2": 2, "b/1": 3, "b/2": 1, "b/3": 4}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("L", (9, 9), grey).save(f"{tmp_path / name}.png")
    options = {"dataset": "folder", "data_dir": str(tmp_path), "skip_invalid": False}
    settings, model = Retrieval("x", split="all", **options), ScoredModel(tmp_path, {})
    copies = (
        r"2 images to score have the content of another file, such as .*a/1\.png and .*b/2\.png"
    )
    with pytest.warns(UserWarning, match=copies):
        assert len(load_images(settings, model).split.labels) == 5
