import dataclasses
import types

import numpy as np

import pipelines
from tfdml.runs.scoring.images import training_split
from tfdml.runs.scoring.retrieval import Retrieval


def test_training_classes_are_those_that_a_run_without_single_images_had():
    labels = np.array([0, 0, 1, 2, 2, 3, 3, 4])
    train, test = (pipelines.Split(np.zeros((8, 2, 2, 1), np.uint8), labels + n) for n in (0, 9))
    dataset = pipelines.Dataset("photos", train, test, image_size=(2, 2, 1))
    model = types.SimpleNamespace(was_trained_on=lambda _: True, recipe={"validation_share": 0.34})
    found = training_split(Retrieval("x", split="test"), model, dataset)
    assert found.labels.tolist() == [0, 0, 2, 2]
    few = dataclasses.replace(dataset, train=train.subset([0, 1, 2, 3]))
    assert training_split(Retrieval("x", split="test"), model, few) is None
