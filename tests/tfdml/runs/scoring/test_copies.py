import types

import numpy as np
import pytest
from PIL import Image

import pipelines
from tfdml.evaluation import retrieval_scores
from tfdml.runs.scoring.copies import scores_without_copies
from tfdml.runs.scoring.scored_images import Images
from tfdml.runs.task_options import Retrieval

LABELS = np.array([5, 5, 6, 6, 7, 7, 7])
ROWS = np.random.default_rng(0).normal(size=(7, 3))
OPTIONS = Retrieval("x", split="test", k=[1, 2])


@pytest.fixture
def dataset(tmp_path):
    """Smooth random pictures; of those to test, 1 is also trained on, and 4 and 6 are one."""
    rng, drawn = np.random.default_rng(0), {}

    def picture(name, of):
        if of not in drawn:
            small = Image.fromarray(rng.integers(0, 256, (9, 9, 3)).astype(np.uint8))
            drawn[of] = small.resize((80, 80), Image.Resampling.BICUBIC)
        drawn[of].save(tmp_path / name, quality=80)
        return str(tmp_path / name)

    train = [picture(f"train{i}.png", f"train{i}") for i in range(4)]
    test = [picture(f"{i}.png", i) for i in range(6)]
    test[1], test[6:] = picture("1.jpg", "train2"), [picture("6.jpg", 4)]
    splits = [
        pipelines.Split(np.array(paths), labels)
        for paths, labels in ((train, np.array([0, 0, 1, 1])), (test, LABELS))
    ]
    return pipelines.Dataset("photos", *splits, image_size=(80, 80, 3))


def scored(split, queries=None, dataset=None, options=OPTIONS):
    images = Images(split, queries, dataset)
    embedded = types.SimpleNamespace(images=images, embeddings=ROWS, labels=LABELS)
    return scores_without_copies(embedded, options)


def test_scores_leave_out_what_was_trained_on_and_what_is_there_twice(dataset):
    kept = [2, 3, 4, 5]  # without 0 too, whose class has no other image left
    expected = retrieval_scores(ROWS[kept], LABELS[kept], k=[1, 2])
    assert scored(dataset.test, None, dataset) == {"copies": 2, "scores": expected}
    kept = [0, 1, 2, 3, 4, 5]
    expected = retrieval_scores(ROWS[kept], LABELS[kept], k=[1, 2])
    assert scored(dataset.test) == {"copies": 1, "scores": expected}


def test_a_picture_counts_in_the_gallery_before_the_queries(dataset):
    queries = np.isin(np.arange(7), [0, 2, 4])
    kept, gallery = [0, 2], [1, 3, 5, 6]
    searched = {"gallery_embeddings": ROWS[gallery], "gallery_labels": LABELS[gallery]}
    expected = retrieval_scores(ROWS[kept], LABELS[kept], k=[1, 2], **searched)
    assert scored(dataset.test, queries) == {"copies": 1, "scores": expected}


def test_no_scores_where_nothing_is_there_twice_or_nothing_else(dataset):
    some = dataset.test.subset([0, 2, 3])
    embedded = types.SimpleNamespace(images=Images(some), embeddings=ROWS[:3], labels=LABELS[:3])
    assert scores_without_copies(embedded, OPTIONS) == {"copies": 0}
    queries = np.arange(7) == 6  # whose picture is in the gallery
    assert scored(dataset.test, queries) == {"copies": 1}
    assert scored(pipelines.Split(np.zeros((7, 2, 2, 1), np.uint8), LABELS)) is None
