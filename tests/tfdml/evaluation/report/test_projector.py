"""The files of the projector, read by TensorBoard itself."""

import io
import json
import os
import pathlib
import subprocess
import sys
import urllib.parse

import numpy as np
import pytest
from PIL import Image
from werkzeug.test import Client

from tfdml.evaluation import write_projector
from tfdml.evaluation.report import projector

ROOT = pathlib.Path(__file__).parents[4]
GREY = np.zeros((2, 2, 1), np.uint8)


class Projector:
    """TensorBoard's projector on a folder, asked as its page in the browser asks."""

    def __init__(self, folder):
        from tensorboard.backend import application
        from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
        from tensorboard.plugins import base_plugin
        from tensorboard.plugins.projector import projector_plugin

        provider = data_provider.MultiplexerDataProvider(
            plugin_event_multiplexer.EventMultiplexer(), str(folder)
        )
        context = base_plugin.TBContext(logdir=str(folder), data_provider=provider)
        plugin = projector_plugin.ProjectorPlugin(context)
        self.client = Client(application.TensorBoardWSGI([plugin]))
        self.runs = json.loads(self.get("runs"))
        if self.runs:
            (self.embedding,) = json.loads(self.get("info", run="."))["embeddings"]

    def get(self, route, **query):
        address = f"/data/plugin/projector/{route}?{urllib.parse.urlencode(query)}"
        response = self.client.get(address)
        assert response.status_code == 200, response.data
        return response.data

    def content(self, route):
        return self.get(route, run=".", name=self.embedding["tensorName"])

    def rows(self):
        return np.frombuffer(self.content("tensor"), np.float32).reshape(
            self.embedding["tensorShape"]
        )

    def metadata(self):
        return self.content("metadata").decode().split("\n")

    def sprite(self):
        """The sprite, and the sides of a picture in it."""
        sprite = Image.open(io.BytesIO(self.content("sprite_image")))
        return np.asarray(sprite), self.embedding["sprite"]["singleImageDim"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_keeps_rows_to_the_last_digit(dtype, tmp_path, rng):
    rows = (rng.normal(size=(40, 5)) * 10.0 ** rng.integers(-6, 5, (40, 5))).astype(dtype)
    rows[0, :4] = 0.0, -0.0, np.finfo(dtype).tiny, 6e4 if dtype == "float16" else 3.4e38
    labels = np.append(rng.integers(0, 5, 38) + 2**40, [-1, 2**62])
    config = write_projector(tmp_path / "new" / "folder", rows, labels)
    assert config == tmp_path / "new" / "folder" / "projector_config.pbtxt"
    shown = Projector(config.parent)
    np.testing.assert_array_equal(shown.rows(), rows.astype(np.float32))
    assert shown.metadata() == [*map(str, labels), ""]
    assert "sprite" not in shown.embedding


def test_names_stay_in_their_field(tmp_path):
    names = {7: "tab\there", 8: "two\nlines\r\n and\u2028a half ", 2**50: "Škoda 100%", 9: ""}
    data, images = (np.eye(5), np.array([7, 8, 2**50, 9, 11])), ["1.png", "$x$", "a  b", "c/d", ""]
    write_projector(tmp_path, *data, class_names=names, image_names=images)
    ids = ["7", "8", str(2**50), "9", "11"]
    classes = ["tab here", "two lines and a half", "Škoda 100%", "", "11"]
    rows = ["label\tclass_name\timage"]
    rows += map("\t".join, zip(ids, classes, ["1.png", "$x$", "a b", "c/d", ""], strict=True))
    assert Projector(tmp_path).metadata() == [*rows, ""]
    write_projector(tmp_path, *data, image_names=images)
    assert Projector(tmp_path).metadata()[:2] == ["label\timage", "7\t1.png"]


@pytest.mark.parametrize("count", [1, 10])
def test_pictures_stand_line_by_line(count, tmp_path):
    """Ten pictures of one colour each: four columns, of which the last lines are empty."""

    def picture_of(row):
        return np.full((12, 12, 3), (20 * row + 20, row, 255), np.uint8)

    write_projector(tmp_path, np.eye(count), np.arange(count), picture_of=picture_of, side=6)
    sprite, dimensions = Projector(tmp_path).sprite()
    assert dimensions == [6, 6]
    columns = int(np.ceil(count**0.5))
    assert sprite.shape == (6 * columns, 6 * columns, 3)
    for place in range(columns**2):
        line, column = divmod(place, columns)
        colour = [20 * place + 20, place, 255] if place < count else [0, 0, 0]
        cell = sprite[6 * line : 6 * line + 6, 6 * column : 6 * column + 6]
        np.testing.assert_array_equal(cell, np.broadcast_to(colour, (6, 6, 3)))


@pytest.mark.parametrize("shape", [(2, 4), (4, 8, 1), (40, 80, 3)])
def test_pictures_keep_their_shape(shape, tmp_path):
    """A wide grey picture: black above and below."""
    options = {"picture_of": lambda row: np.full(shape, 200, np.uint8), "side": 8}
    write_projector(tmp_path, np.ones((1, 2)), np.array([[0]]), **options)
    sprite, _ = Projector(tmp_path).sprite()
    np.testing.assert_array_equal(sprite[..., 0].mean(axis=1), [0, 0, 200, 200, 200, 200, 0, 0])


@pytest.mark.parametrize(("count", "side"), [(64, 64), (65, 56), (1000, 16)])
def test_many_pictures_are_smaller(count, side, tmp_path, monkeypatch):
    monkeypatch.setattr(projector, "_SPRITE_SIDE", 512)
    write_projector(tmp_path, np.ones((count, 1)), np.arange(count), picture_of=lambda row: GREY)
    sprite, dimensions = Projector(tmp_path).sprite()
    assert dimensions == [side, side]
    assert sprite.shape == (*2 * [int(np.ceil(count**0.5)) * side], 3)


def test_replaces_what_it_wrote(tmp_path):
    write_projector(tmp_path, np.eye(4), np.arange(4), picture_of=lambda row: GREY)
    write_projector(tmp_path, np.eye(3), np.arange(3))
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"metadata.tsv", "projector_config.pbtxt", "tensors.tsv"}
    assert Projector(tmp_path).rows().shape == (3, 3)

    def lost(row):
        raise OSError("picture lost")

    with pytest.raises(OSError, match="picture lost"):
        write_projector(tmp_path, np.eye(2), np.arange(2), picture_of=lost)
    assert Projector(tmp_path).runs == []


def test_needs_no_tensorflow(tmp_path):
    program = (
        "import sys, numpy as np; from tfdml.evaluation import write_projector;"
        "picture = np.zeros((2, 2, 3), np.uint8);"
        "write_projector(sys.argv[1], np.eye(3), np.arange(3), picture_of=lambda row: picture);"
        "print('tensorflow' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, str(tmp_path)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.stdout == "False\n", run.stderr


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"class_names": ["a"]}, TypeError, r"`class_names` must be a dict.*class_names='list'"),
        ({"image_names": ["a"]}, ValueError, r"`image_names` .* Received: image_names=1, rows=3"),
        ({"picture_of": GREY}, TypeError, "`picture_of` must be a callable or None"),
        ({"picture_of": lambda row: GREY / 255}, TypeError, "uint8. Received: dtype=.*row=0"),
        ({"picture_of": lambda row: GREY[0, 0]}, ValueError, r"1 or 3\). Received: shape=\(1,\)"),
        ({"picture_of": lambda row: np.zeros((2, 2, 4), np.uint8)}, ValueError, r"\(2, 2, 4\)"),
        ({"picture_of": lambda row: GREY[:0]}, ValueError, r"shape=\(0, 2, 1\), row=0"),
        ({"side": 0}, ValueError, "`side` must be an integer >= 1 and < 8193. Received: side=0"),
        ({"side": 9000}, ValueError, "side=9000"),
        ({"labels": np.ones(3)}, TypeError, "`labels` must be integers"),
        ({"embeddings": 1e300 * np.eye(3)}, ValueError, r"as float32. Received: largest=1e\+300"),
    ],
)
def test_rejects_bad_options(options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        write_projector(tmp_path, **{"embeddings": np.eye(3), "labels": np.arange(3), **options})
    assert not (tmp_path / "projector_config.pbtxt").exists()
