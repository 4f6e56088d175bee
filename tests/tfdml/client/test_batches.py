import numpy as np

from tfdml.client import images as module
from tfdml.client.images import Image, ImageError, batches_of


def image(name, content=b"x"):
    return Image((name,), (content,))


def names_of(images, batch_size):
    return [[str(each.name) for each in batch] for batch in batches_of(images, batch_size)]


def test_batches_are_full_but_the_last():
    images = [image(str(i)) for i in range(7)]
    assert names_of(images, 3) == [["0", "1", "2"], ["3", "4", "5"], ["6"]]
    assert names_of([], 3) == []


def test_a_batch_holds_one_kind():
    pixels = np.zeros((2, 2, 3), "float32")
    images = [image("0"), image("1", pixels), image("2", pixels), image("3")]
    assert names_of(images, 3) == [["0"], ["1", "2"], ["3"]]


def test_errors_stand_alone_in_their_place():
    errors = [ImageError(name, "gone") for name in "bc"]
    found = list(batches_of([image("a"), *errors, image("d")], 3))
    assert found == [[image("a")], [errors[0]], [errors[1]], [image("d")]]


def test_large_images_come_in_smaller_batches(monkeypatch):
    monkeypatch.setattr(module, "_MOST_BYTES", 10)
    images = [image(str(i), b"x" * size) for i, size in enumerate((4, 4, 4, 30, 1))]
    assert names_of(images, 4) == [["0", "1"], ["2"], ["3"], ["4"]]
