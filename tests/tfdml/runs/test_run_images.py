"""The images of a recipe, and the batches of every sampler."""

import numpy as np
import pytest
from small_runs import completed, small_dataset, write_images

import pipelines
from tfdml.programs import train
from tfdml.runs.network import build_model
from tfdml.runs.run_batches import distinct_pictures, training_batches
from tfdml.runs.run_images import load_images


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ("ab", [], "2 or more classes to train besides those to score. Received: classes=1, "),
        ("ab", ["--sampler", "shuffled"], "2 or more classes to train"),
        ("abcdef", ["--validation_share", "0.3"], "2 or more classes to score"),
    ],
)
def test_too_few_classes_are_rejected(tmp_path, names, options, message):
    photos = write_images(tmp_path / "photos", dict.fromkeys(names, 2))
    data = ["--dataset", "folder", "--data_dir", str(photos), "--run", "unused"]
    recipe, *_ = train.parse([*data, *options])
    with pytest.raises(ValueError, match=message):
        load_images(recipe)


@pytest.fixture(scope="module")
def small_model():
    """A model of the small dataset, which several samplers train on."""
    dataset = small_dataset()
    return build_model(completed(steps=8, checkpoint_every=4), dataset.train, dataset)


@pytest.mark.parametrize(
    ("sampler", "options", "most_sizes"),
    [
        ("groups", {}, 5),
        ("whole_classes", {}, 2),
        ("pairs", {"hard_neighbours": True}, 1),
    ],
)
def test_a_model_trains_with_the_batches_of_every_sampler(
    sampler, options, most_sizes, small_model
):
    dataset = small_dataset()
    recipe = completed(
        sampler=sampler,
        sampler_options=options,
        classes_per_batch=4,
        images_per_class=3,
        steps=8,
        checkpoint_every=4,
    )
    small_model.optimizer.iterations.assign(0)
    batches, callbacks = training_batches(recipe, 0, dataset.train, dataset)
    fitted = {"epochs": 2, "callbacks": callbacks, "shuffle": False, "verbose": 0}
    history = small_model.fit(batches, steps_per_epoch=4, **fitted)
    assert np.isfinite(history.history["loss"]).all()
    assert int(small_model.optimizer.iterations) == 8
    if not callbacks:
        sizes = {len(labels) for _, labels in batches.take(20)}
        assert max(sizes) == 12
        assert min(2, most_sizes) <= len(sizes) <= most_sizes


def test_two_images_of_one_picture_are_never_in_one_batch(tmp_path):
    photos = write_images(tmp_path / "photos", dict.fromkeys("abcd", 4))
    (photos / "a" / "again.png").write_bytes((photos / "a" / "0.png").read_bytes())
    options = {"skip_duplicates": True, "hard_neighbours": False}
    recipe = completed(
        dataset="folder",
        data_dir=str(photos),
        sampler="pairs",
        sampler_options=options,
        classes_per_batch=2,
        images_per_class=2,
    )
    split = load_images(recipe).train
    pictures = distinct_pictures(recipe, split)
    assert pictures.tolist() == [0, 1, 2, 3, 0, 5, 6, 7, 8]
    views = pipelines.Split(inputs=np.arange(18), labels=np.tile(split.labels, 2))
    batches, _ = training_batches(recipe, 0, views, None, pictures=pictures)
    rows = [rows.numpy() for rows, _ in batches.take(60)]
    assert {0, 4, 9, 13} <= set(np.concatenate(rows).tolist())
    assert all(len(set(pictures[each % 9])) == len(set(each)) for each in rows)
