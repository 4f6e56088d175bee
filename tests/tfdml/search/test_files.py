import os

import pytest

from tfdml.search.files import Stamp, image_files, inside, read
from tfdml.search.refusals import RefusedError


def write(path, content=b"content"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture
def outside(tmp_path):
    return write(tmp_path / "outside" / "secret.png", b"secret")


@pytest.fixture
def images(tmp_path):
    path = tmp_path / "images"
    path.mkdir()
    return path.resolve()


def test_finds_images_in_all_folders(images):
    for name in ("b.PNG", "a/c.jpeg", "a/d/e.webp", "a/notes.txt", ".hidden.png", ".git/x.png"):
        write(images / name, name.encode())
    found = image_files(images)
    assert list(found) == ["a/c.jpeg", "a/d/e.webp", "b.PNG"]
    status = (images / "b.PNG").stat()
    assert found["b.PNG"] == Stamp(5, status.st_mtime_ns)


def test_passes_over_links_that_lead_out(images, outside):
    write(images / "own.png")
    (images / "link.png").symlink_to(outside)
    (images / "relative.png").symlink_to(os.path.relpath(outside, images))
    (images / "folder").symlink_to(outside.parent)
    (images / "nothing.png").symlink_to(images / "missing.png")
    (images / "inner.png").symlink_to(images / "own.png")
    (images / "loop").symlink_to(images)
    with pytest.warns(UserWarning, match="2 links .*/images"):
        assert list(image_files(images)) == ["inner.png", "own.png"]


def test_a_folder_with_the_name_of_an_image_is_none(images):
    write(images / "album.png" / "a.png")
    (images / "link.png").symlink_to(images / "album.png")
    assert list(image_files(images)) == ["album.png/a.png"]


def test_paths_that_leave_the_folder_are_refused(images, outside):
    write(images / "own.png")
    (images / "link.png").symlink_to(outside)
    (images / "folder").symlink_to(outside.parent)
    sibling = write(images.with_name("images2") / "a.png")
    names = ["../outside/secret.png", str(outside), "link.png", "folder/secret.png", str(sibling)]
    for name in names:
        with pytest.raises(RefusedError, match="no longer in the folder") as caught:
            inside(images, name)
        assert caught.value.status == 404
    assert inside(images, "own.png") == images / "own.png"
    with pytest.raises(FileNotFoundError):
        inside(images, "missing.png")


def test_reads_a_file_that_is_as_it_was(images):
    path = write(images / "a.png", b"first")
    stamp = image_files(images)["a.png"]
    assert read(images, "a.png", stamp) == b"first"
    os.utime(path, ns=(0, stamp.modified + 1))
    with pytest.raises(RefusedError, match="has changed since it was indexed") as caught:
        read(images, "a.png", stamp)
    assert caught.value.status == 410
    path.write_bytes(b"another")
    os.utime(path, ns=(0, stamp.modified))
    with pytest.raises(RefusedError, match="has changed"):
        read(images, "a.png", stamp)


def test_a_file_that_became_a_link_out_is_not_read(images, outside):
    path = write(images / "a.png", b"secret")
    stamp = image_files(images)["a.png"]
    path.unlink()
    os.utime(outside, ns=(0, stamp.modified))
    path.symlink_to(outside)
    with pytest.raises(RefusedError) as caught:
        read(images, "a.png", stamp)
    assert caught.value.status == 404


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all")
def test_warns_of_a_folder_that_is_closed(images):
    write(images / "closed" / "a.png")
    (images / "closed").chmod(0)
    try:
        with pytest.warns(UserWarning, match="ignored .*/closed"):
            assert image_files(images) == {}
    finally:
        (images / "closed").chmod(0o755)
