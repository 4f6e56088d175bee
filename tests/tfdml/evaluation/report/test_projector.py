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

ROOT = pathlib.Path(__file__).parents[3]


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
        self._client = Client(application.TensorBoardWSGI([plugin]))

    def __call__(self, route, **query):
        address = f"/data/plugin/projector/{route}?{urllib.parse.urlencode(query)}"
        response = self._client.get(address)
        assert response.status_code == 200, response.data
        return response.data

    def embedding(self):
        assert json.loads(self("runs")) == ["."]
        (embedding,) = json.loads(self("info", run="."))["embeddings"]
        return embedding

    def rows(self):
        embedding = self.embedding()
        content = self("tensor", run=".", name=embedding["tensorName"])
        return np.frombuffer(content, np.float32).reshape(embedding["tensorShape"])

    def metadata(self):
        name = self.embedding()["tensorName"]
        return self("metadata", run=".", name=name).decode().split("\n")

    def sprite(self):
        """The sprite, and the sides of a picture in it."""
        embedding = self.embedding()
        content = self("sprite_image", run=".", name=embedding["tensorName"])
        return np.asarray(Image.open(io.BytesIO(content))), embedding["sprite"]["singleImageDim"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_keeps_rows_to_the_last_digit(dtype, tmp_path, rng):
    rows = (rng.normal(size=(40, 5)) * 10.0 ** rng.integers(-6, 5, (40, 5))).astype(dtype)
    labels = rng.integers(0, 5, 40) + 2**40
    config = write_projector(tmp_path / "new" / "folder", rows, labels)
    assert config == tmp_path / "new" / "folder" / "projector_config.pbtxt"
    shown = Projector(config.parent)
    np.testing.assert_array_equal(shown.rows(), rows.astype(np.float32))
    assert shown.metadata() == [*map(str, labels), ""]
    assert "sprite" not in shown.embedding()


def test_extreme_rows_are_read_as_they_are(tmp_path):
    rows = np.array([[0.0, -0.0, 1e-45], [3.4e38, -1e-38, 1.0]], np.float32)
    write_projector(tmp_path, rows, np.array([-1, 2**62]))
    shown = Projector(tmp_path)
    np.testing.assert_array_equal(shown.rows(), rows)
    assert shown.metadata() == ["-1", str(2**62), ""]


def test_names_stay_in_their_field(tmp_path):
    names = {7: "tab\there", 8: "two\nlines\r\n and\u2028a half ", 2**50: "Škoda 100%", 9: ""}
    write_projector(tmp_path, np.eye(5), np.array([7, 8, 2**50, 9, 11]), class_names=names)
    shown = Projector(tmp_path)
    assert shown.metadata() == [
        "label\tclass_name",
        "7\ttab here",
        "8\ttwo lines and a half",
        f"{2**50}\tŠkoda 100%",
        "9\t",
        "11\t11",
        "",
    ]
    assert len(shown("metadata", run=".", name="embeddings", num_rows=5).splitlines()) == 6


def test_a_single_row(tmp_path):
    write_projector(
        tmp_path,
        np.ones((1, 1)),
        np.array([[3]]),
        picture_of=lambda row: np.full((4, 4, 1), 9, np.uint8),
        side=4,
    )
    assert Projector(tmp_path).metadata() == ["3", ""]
    sprite, dimensions = Projector(tmp_path).sprite()
    assert dimensions == [4, 4]
    np.testing.assert_array_equal(sprite, np.full((4, 4, 3), 9))


def test_pictures_stand_line_by_line(tmp_path):
    """Ten pictures of one colour each: four columns, of which the last lines are empty."""
    write_projector(
        tmp_path,
        np.eye(10),
        np.arange(10),
        picture_of=lambda row: np.full((12, 12, 3), (20 * row + 20, row, 255), np.uint8),
        side=6,
    )
    sprite, dimensions = Projector(tmp_path).sprite()
    assert dimensions == [6, 6]
    assert sprite.shape == (24, 24, 3)
    for place in range(16):
        line, column = divmod(place, 4)
        colour = [20 * place + 20, place, 255] if place < 10 else [0, 0, 0]
        cell = sprite[6 * line : 6 * line + 6, 6 * column : 6 * column + 6]
        np.testing.assert_array_equal(cell, np.broadcast_to(colour, (6, 6, 3)))


@pytest.mark.parametrize("shape", [(4, 8), (4, 8, 1), (4, 8, 3)])
def test_pictures_keep_their_shape(shape, tmp_path):
    """A wide grey picture: black above and below."""
    write_projector(
        tmp_path,
        np.ones((1, 2)),
        np.array([0]),
        picture_of=lambda row: np.full(shape, 200, np.uint8),
        side=8,
    )
    sprite, _ = Projector(tmp_path).sprite()
    np.testing.assert_array_equal(sprite[..., 0].mean(axis=1), [0, 0, 200, 200, 200, 200, 0, 0])


@pytest.mark.parametrize(("count", "side"), [(16, 64), (64, 64), (65, 56), (1000, 16)])
def test_many_pictures_are_smaller(count, side, tmp_path, monkeypatch):
    monkeypatch.setattr(projector, "_SPRITE_SIDE", 512)
    picture = np.full((2, 2, 3), 77, np.uint8)
    write_projector(tmp_path, np.ones((count, 1)), np.arange(count), picture_of=lambda row: picture)
    sprite, dimensions = Projector(tmp_path).sprite()
    assert dimensions == [side, side]
    columns = int(np.ceil(count**0.5))
    assert sprite.shape == (columns * side, columns * side, 3)
    assert max(sprite.shape) <= 512
    assert (sprite == 77).sum() == count * side * side * 3


def test_replaces_what_it_wrote(tmp_path):
    picture = np.zeros((2, 2, 3), np.uint8)
    write_projector(tmp_path, np.eye(4), np.arange(4), picture_of=lambda row: picture)
    write_projector(tmp_path, np.eye(3), np.arange(3))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "metadata.tsv",
        "projector_config.pbtxt",
        "tensors.tsv",
    ]
    assert Projector(tmp_path).rows().shape == (3, 3)

    def lost(row):
        raise OSError("picture lost")

    with pytest.raises(OSError, match="picture lost"):
        write_projector(tmp_path, np.eye(2), np.arange(2), picture_of=lost)
    assert json.loads(Projector(tmp_path)("runs")) == []


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


GREY = np.zeros((2, 2, 1), np.uint8)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"class_names": ["a"]}, TypeError, r"`class_names` must be a dict.*class_names='list'"),
        ({"picture_of": GREY}, TypeError, "`picture_of` must be a callable or None"),
        ({"picture_of": lambda row: GREY / 255}, TypeError, "uint8. Received: dtype=.*row=0"),
        ({"picture_of": lambda row: GREY[0, 0]}, ValueError, r"1 or 3\). Received: shape=\(1,\)"),
        ({"picture_of": lambda row: np.zeros((2, 2, 4), np.uint8)}, ValueError, r"\(2, 2, 4\)"),
        ({"picture_of": lambda row: GREY[:0]}, ValueError, r"shape=\(0, 2, 1\), row=0"),
        ({"side": 0}, ValueError, "`side` must be an integer >= 1 and < 8193. Received: side=0"),
        ({"side": 9000}, ValueError, "side=9000"),
    ],
)
def test_rejects_bad_options(options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        write_projector(tmp_path, np.eye(3), np.arange(3), **options)
    assert not (tmp_path / "projector_config.pbtxt").exists()


def test_rejects_rows_that_float32_cannot_hold(tmp_path):
    with pytest.raises(ValueError, match=r"finite as float32. Received: largest=1e\+300"):
        write_projector(tmp_path, np.full((2, 2), 1e300), np.arange(2))
    with pytest.raises(TypeError, match="`labels` must be integers"):
        write_projector(tmp_path, np.eye(2), np.ones(2))
    assert not list(tmp_path.iterdir())
