import threading
import time

import numpy as np
import pytest

from tfdml.client import batches
from tfdml.client.errors import ImageError
from tfdml.client.images import Image


def image(name, content=b"x"):
    return Image((name,), (content,))


def names_of(images, batch_size):
    return [[str(each.name) for each in batch] for batch in batches.batches_of(images, batch_size)]


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
    found = list(batches.batches_of([image("a"), *errors, image("d")], 3))
    assert found == [[image("a")], [errors[0]], [errors[1]], [image("d")]]


def test_large_images_come_in_smaller_batches(monkeypatch):
    monkeypatch.setattr(batches, "_MOST_BYTES", 10)
    images = [image(str(i), b"x" * size) for i, size in enumerate((4, 4, 4, 30, 1))]
    assert names_of(images, 4) == [["0", "1"], ["2"], ["3"], ["4"]]


def test_answers_come_in_order_and_only_so_many_are_under_way():
    lock, under_way, most = threading.Lock(), [0], [0]

    def slow(i):
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        time.sleep(0.02 * (3 - i % 4))
        with lock:
            under_way[0] -= 1
        return i

    taken = []

    def items():
        for i in range(12):
            taken.append(i)
            yield i

    found = []
    for answer in batches.in_order(slow, items(), 3):
        found.append(answer)
        assert len(taken) <= len(found) + 2  # not all of them are read at once
    assert found == list(range(12))
    assert most[0] == 3


def test_the_error_of_a_call_is_raised_in_its_place():
    def function(i):
        return 1 // (2 - i)

    answers = batches.in_order(function, range(5), 2)
    assert [next(answers), next(answers)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(answers)
