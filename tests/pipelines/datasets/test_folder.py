import pathlib
import shutil
import warnings

import pytest
from archives import write_image as write

from pipelines import load


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
    assert dataset.image_size == (112, 112, 3)


def test_warns_of_other_files_and_of_folders_but_not_of_hidden_ones(folder, recwarn):
    files = ["cat/4.psd", "emu/4.PSD", "fox/4.mp4", "fox/5", "fox/.6.psd", "cat/.4.jpg", "x.txt"]
    for name in files:
        (folder / name).write_bytes(b"")
    for name in ("cat/more.psd", ".cache", "gnu/more"):
        (folder / name).mkdir()
    assert len(load("folder", folder).train.labels) == 6
    assert [str(warning.message) for warning in recwarn] == [
        "ignored 6 files and folders that do not end in .bmp, .gif, .jpeg, .jpg, .png, .webp, "
        ".avif, .heic, .heif, .tif, .tiff: "
        "cat/4.psd, cat/more.psd, emu/4.PSD, fox/4.mp4, fox/5, ..."
    ]
    assert pathlib.Path(recwarn[0].filename).name == "test_folder.py"


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
    with pytest.raises(FileNotFoundError, match=r"images per class; there is no .*missing"):
        load("folder", tmp_path / "missing")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"images per class\. .*file"):
        load("folder", tmp_path / "file")
    with pytest.raises(ValueError, match=r"2 or more .*sub_folders=0, with_images=0"):
        load("folder", tmp_path)
    (tmp_path / "empty").mkdir()
    write(tmp_path / "cat" / "1.jpg")
    with pytest.raises(ValueError, match=r"2 or more .*sub_folders=2, with_images=1"):
        load("folder", tmp_path)


def test_folders_may_be_parts_and_classes_may_lie_in_super_classes(tmp_path):
    for name in ("train/cat/tabby", "train/cat/tom", "val/dog/pug", "test/dog/lab"):
        for image in "12":
            write(tmp_path / name / f"{image}.png")
    dataset = load("folder", tmp_path)
    assert dataset.train.names == ["cat/tabby", "cat/tom", "dog/pug"]
    assert dataset.test.names == ["dog/lab"]
    assert dataset.train.super_labels.tolist() == [0, 0, 0, 0, 1, 1]
    for image in "12":
        write(tmp_path / "test" / "cat" / "tom" / f"{image}.jpg")
    with pytest.warns(UserWarning, match="the first half of them trains"):
        dataset = load("folder", tmp_path)
    assert dataset.train.names == ["cat/tabby", "cat/tom"]
    assert len(dataset.train.labels) == 6


@pytest.mark.parametrize("suffix", ["zip", "tar.gz"])
def test_an_archive_is_unpacked_once(suffix, folder, tmp_path_factory):
    kind = {"tar.gz": "gztar"}.get(suffix, suffix)
    base = tmp_path_factory.mktemp("packed") / "photos"
    packed = pathlib.Path(shutil.make_archive(str(base), kind, folder.parent, folder.name))
    dataset = load("folder", packed)
    assert dataset.train.names == ["cat", "dog"]
    before = pathlib.Path(dataset.train.images[0]).stat()
    again = load("folder", packed)
    assert pathlib.Path(again.train.images[0]).stat() == before
    exclude = base.parent / "exclude.csv"
    exclude.write_text("path\ncat/1.jpg\n")
    assert len(load("folder", packed, exclude=exclude).train.labels) == 5
    packed.write_bytes(packed.read_bytes()[:99])
    with pytest.raises(ValueError, match=rf"photos\.{suffix} cannot be unpacked"):
        load("folder", packed)
