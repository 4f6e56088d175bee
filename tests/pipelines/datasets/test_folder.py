import pathlib
import warnings

import pytest
from PIL import Image

import pipelines
from pipelines import load


def write(path, size=(20, 16)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (200, 100, 50)).save(path)


@pytest.fixture
def folder(tmp_path):
    """Five classes of three images."""
    for name in ("cat", "dog", "emu", "fox", "gnu"):
        for image in ("1.jpg", "2.JPEG", "3.png"):
            write(tmp_path / name / image)
    return tmp_path


def test_the_first_half_of_the_sorted_classes_trains(folder):
    names = ["0.JPG", "00.jpg", "01.bmp", "02.gif", "03.jpeg", "04.png", "05.webp"]
    for name in names:
        write(folder / "cat" / name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = load("folder", folder)
    assert dataset.train.names == ["cat", "dog"]
    assert dataset.test.names == ["emu", "fox", "gnu"]
    found = [pathlib.Path(path).name for path in dataset.train.images[:10]]
    assert found == [*names, "1.jpg", "2.JPEG", "3.png"]
    for path, label in zip(dataset.test.images, dataset.test.labels, strict=True):
        assert pathlib.Path(path).parent.name == dataset.test.class_names[label]
    batch = next(iter(pipelines.evaluation_batches(dataset.train, dataset.image_size)))
    assert batch.shape == (13, 112, 112, 3)


def test_warns_of_other_files_and_of_folders_but_not_of_hidden_ones(folder, recwarn):
    for name in (
        "cat/4.tif",
        "emu/4.TIF",
        "fox/4.heic",
        "fox/5",
        "fox/.6.tif",
        "cat/.4.jpg",
        "x.txt",
    ):
        (folder / name).write_bytes(b"")
    for name in ("cat/more.tif", ".cache", "gnu/more"):
        (folder / name).mkdir()
    assert len(load("folder", folder).train.labels) == 6
    assert [str(warning.message) for warning in recwarn] == [
        "ignored 6 files and folders that do not end in .bmp, .gif, .jpeg, .jpg, .png, .webp: "
        "cat/4.tif, cat/more.tif, emu/4.TIF, fox/4.heic, fox/5, ..."
    ]
    assert pathlib.Path(recwarn[0].filename).name == "test_folder.py"


def test_names_the_images_that_cannot_be_read(folder):
    (folder / "dog" / "1.jpg").write_bytes(b"")
    whole = (folder / "emu" / "1.jpg").read_bytes()
    (folder / "emu" / "1.jpg").write_bytes(whole[: len(whole) - 30])
    load("folder", folder)  # does not read them
    message = r"left out 2 images that .* read: .*dog/1\.jpg \(0 bytes, no .*emu/1\.jpg"
    with pytest.warns(UserWarning, match=message):
        dataset = load("folder", folder, skip_invalid=True)
    assert (len(dataset.train.labels), len(dataset.test.labels)) == (5, 8)


def test_names_training_classes_with_fewer_than_two_images(folder):
    write(folder / "bee" / "1.jpg")
    write(folder / "yak" / "1.jpg")  # a test class may have one
    with pytest.raises(ValueError, match=r"1 training classes with a single image.*: bee\."):
        load("folder", folder)
    with pytest.warns(UserWarning, match="left out 1 training classes"):
        dataset = load("folder", folder, skip_invalid=True)
    assert dataset.train.names == ["cat", "dog"]
    assert dataset.test.num_classes == 4


def test_names_sub_folders_without_images(folder):
    (folder / "hen").mkdir()
    with pytest.raises(ValueError, match="1 sub-folders without images: hen"):
        load("folder", folder)
    with pytest.warns(UserWarning, match="left out 1 sub-folders without images"):
        assert load("folder", folder, skip_invalid=True).test.num_classes == 3


def test_rejects_what_is_no_folder_of_classes(tmp_path):
    with pytest.raises(ValueError, match=r"needs `data_dir`.*Received: data_dir=None"):
        load("folder", None)
    with pytest.raises(FileNotFoundError, match=r"one sub-folder per class; there is no .*missing"):
        load("folder", tmp_path / "missing")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"one sub-folder per class; .*file is a file"):
        load("folder", tmp_path / "file")


def test_rejects_fewer_than_two_classes(tmp_path):
    with pytest.raises(ValueError, match=r"2 or more .*Found: sub-folders=0, with images=0"):
        load("folder", tmp_path)
    (tmp_path / "empty").mkdir()
    write(tmp_path / "cat" / "1.jpg")
    with pytest.raises(ValueError, match=r"2 or more .*Found: sub-folders=2, with images=1"):
        load("folder", tmp_path)
