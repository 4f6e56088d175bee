import pathlib

from tfdml.image_files import class_folders, is_image


def test_sub_folders_are_classes_without_what_is_hidden(tmp_path):
    for name in ("b/2.png", "b/1.PNG", "b/notes.txt", "b/inner/3.png", "a/.x.png", ".git/y.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "c.png").touch()
    found = class_folders(tmp_path)
    assert list(found) == ["a", "b"]
    assert found["a"] == []
    assert [path.name for path in found["b"]] == ["1.PNG", "2.png", "inner", "notes.txt"]


def test_images_are_recognised_by_their_suffix():
    names = {"a.JPeG": True, "a.b.webp": True, "png": False, "a.tiff": False}
    assert {name: is_image(pathlib.Path(name)) for name in names} == names
