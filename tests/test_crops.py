"""Warped images, their crops and a mean image, through train.py, evaluate.py and the export."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from small_runs import rejection

import pipelines
from tfdml import export
from tfdml.programs import evaluate, train
from tfdml.runs.run_images import load_images
from tfdml.runs.scoring.inference import embed
from tfdml.runs.scoring.scored_model import ScoredModel, completed, find_model
from tfdml.serving import exported

pytestmark = pytest.mark.usefixtures("without_xla", "loaded_once")
SETTINGS = ["--classes_per_batch", "2", "--images_per_class", "2", "--embedding_dim", "8"]
STEPS = ["--steps", "2", "--checkpoint_every", "2", "--run", "crops", "--image_size", "12"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder in which a run with all that goes together has finished, and its images."""
    folder = tmp_path_factory.mktemp("trained")
    rng = np.random.default_rng(0)
    for index in range(16):
        picture = np.full((30, 40, 3), 255, np.uint8)
        picture[5:20, 8:35] = rng.integers(0, 256, (15, 27, 3))
        path = folder / "photos" / "abcd"[index // 4] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
    np.save(folder / "mean.npy", rng.uniform(90, 140, (16, 16, 3)))
    options = ["--warp_size", "16", "--trim_white", "--mean_image", str(folder / "mean.npy")]
    data = ["--dataset", "folder", "--data_dir", str(folder / "photos")]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        train.main([*data, *SETTINGS, *STEPS, *options])
    (folder / "mean.npy").unlink()  # what was exported has its own
    return folder


@pytest.fixture
def version(trained, monkeypatch):
    monkeypatch.chdir(trained)
    return pathlib.Path("saved_models/crops/1")


@pytest.fixture(scope="module")
def signatures(trained):
    return tf.saved_model.load(str(trained / "saved_models" / "crops" / "1")).signatures


def preprocessing_of(version):
    return ScoredModel(version, exported.recipe_of(version)).preprocessing


@pytest.fixture(scope="module")
def contents(trained):
    """The files of the images to test on."""
    files = sorted((trained / "photos").glob("[cd]/*"))
    return tf.constant([path.read_bytes() for path in files])


def test_the_served_model_reads_what_evaluate_scores(version, signatures, contents):
    read = pipelines.Reader((12, 12, 3), preprocessing_of(version))
    served = signatures["read_images"](image_bytes=contents)["images"]
    np.testing.assert_array_equal(served, [read(each) for each in contents])
    assert served.numpy().max() > 255  # of white, minus a mean image


def test_evaluate_takes_several_crops_of_the_warped_image(version, signatures, contents):
    settings = evaluate.parse("retrieval", [str(version), "--crops", "5"])
    model = find_model(settings)
    split = pipelines.load("folder", data_dir="photos").test
    found = embed(completed(settings, model), model, split)
    read = pipelines.Reader((16, 16, 3), model.preprocessing)
    wholes = np.stack([read(each) for each in contents])
    corners = [(0, 0), (0, 4), (4, 0), (4, 4), (2, 2)]
    embed_images = signatures["embed_images"]
    rows = [embed_images(images=wholes[:, y : y + 12, x : x + 12])["embedding"] for y, x in corners]
    unit = [row / np.linalg.norm(row, axis=1, keepdims=True) for row in rows]
    mean = np.mean(unit, axis=0)
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    np.testing.assert_allclose(found, mean, atol=1e-5)


def test_an_export_of_the_run_reads_images_alike(version, signatures, contents):
    export.main(["runs/crops", "--out", "saved_models/again"])
    again = pathlib.Path("saved_models/again/1")
    means = [preprocessing_of(path).mean_image for path in (version, again)]
    np.testing.assert_array_equal(*means)
    images = [
        each["read_images"](image_bytes=contents)["images"]
        for each in (signatures, tf.saved_model.load(str(again)).signatures)
    ]
    np.testing.assert_array_equal(*images)


@pytest.mark.parametrize(
    ("arguments", "crop", "flip"),
    [
        ([], 0.5, True),  # those of the dataset
        (["--keep_aspect", "--augmentation.flip", "false"], 1.0, False),
        (["--warp_size", "120", "--augmentation.crop", "0.3"], 0.3, True),
    ],
)
def test_the_crop_of_the_warp_takes_the_place_of_the_datasets(arguments, crop, flip, version):
    data = ["--dataset", "folder", "--data_dir", "photos", "--run", "unused"]
    recipe, *_ = train.parse([*data, *SETTINGS, *arguments])
    dataset = load_images(recipe).dataset
    assert (dataset.augmentation.crop, dataset.augmentation.flip) == (crop, flip)
    assert dataset.preprocessing.warp_size == recipe.warp_size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--warp_size", "0"], "`warp_size` must be an integer > 0. Received: warp_size=0"),
        (["--mean_image", "none.npy"], "`mean_image` must be an existing file"),
        (["--keep_aspect", "--mean_image", "whole.npy"], "leave out `keep_aspect`"),
    ],
)
def test_what_does_not_go_together_is_rejected_before_the_run(arguments, message, version):
    np.save("whole.npy", np.zeros((112, 112, 3), np.float32))
    data = ["--dataset", "folder", "--data_dir", "photos", *SETTINGS]
    assert message in rejection(*data, *arguments, cwd=".")
    assert [path.name for path in pathlib.Path("runs").iterdir()] == ["crops"]
