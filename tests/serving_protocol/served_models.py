"""A model with two versions, and the servers that serve it."""

import contextlib
import pathlib

import keras
import numpy as np
import protocol_server
import pytest
import tensorflow as tf
from image_contents import encode
from PIL import Image

from pipelines import Reader
from tfdml import EmbeddingModel, losses
from tfdml.evaluation import class_means, open_set_decision
from tfdml.models import build_embedder
from tfdml.serving import ExportOptions, Gallery, export_model
from tfdml.serving.options import FORMATS, check_runtime

SIZE = (16, 12, 3)
NAME = "embedder"


class Served:
    """Two versions of a model, of which the second learned a similarity, and numbers by Keras."""

    def __init__(self, folder):
        self.folder, self.models = folder / NAME, {}
        for version in (1, 2):
            keras.utils.set_random_seed(version)
            embedder = build_embedder("small_cnn", 8, input_shape=SIZE, normalize=version == 1)
            model = EmbeddingModel(embedder)
            name, options = ("pddm", {"similarity": {"seed": 0}}) if version == 2 else ("npair", {})
            model.compile(loss=losses.get(name, **options))
            path = self.folder / str(version)
            if version == 1:
                export_model(embedder, path, Reader(SIZE), loss=model.loss)
            else:
                rows = np.random.default_rng(0).normal(size=(24, 8))
                labels, names = np.arange(24) % 8, list("abcdefgh")
                classes = Gallery(names, class_means(rows, labels)[1])
                self.decision = open_set_decision(rows, labels, names)
                # With its loss, and reads as `Reader` does.
                export_model(model, path, classes=classes, decision=self.decision)
            self.models[version] = model

    def embed(self, contents, version=2):
        """Embeddings of the bytes of files."""
        images = [Reader(SIZE)(content) for content in contents]
        return self.models[version].embed(np.stack(images))

    def similarity(self, a, b, version=2):
        return self.models[version].similarity(self.embed(a, version), self.embed(b, version))


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    return Served(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def complete(served, tmp_path_factory):
    """Version 1 of `served` with all that is optional."""
    rows = np.random.default_rng(0).normal(size=(3, 8))
    return export_model(
        served.models[1].embedder,
        tmp_path_factory.mktemp("complete") / "1",
        Reader(SIZE),
        assets={"recipe.yaml": "loss: lifted\n"},
        options=ExportOptions(precision="int8", on_bad_image="nan", licence="MIT"),
        classes=Gallery(["x", "y", "z"], rows),
        gallery=Gallery(["1.png", "2.png", "3.png"], rows, ["x", "y", "y"]),
        top=2,
        metadata={"recipe": {"loss": "lifted"}, "trained_classes": ["é", "b"]},
    )


@pytest.fixture(scope="session")
def complete_signatures(complete):
    return tf.saved_model.load(str(complete)).signatures


@pytest.fixture(scope="session")
def contents():
    """Bytes of five image files of different sizes, the last grey."""
    rng = np.random.default_rng(0)
    kinds = ("PNG", "JPEG", "PNG", "PNG", "JPEG")
    shapes = [(20 + 3 * i, 30 - 2 * i, 3) for i in range(4)] + [(17, 40)]
    noise = [Image.fromarray(rng.integers(0, 256, shape).astype(np.uint8)) for shape in shapes]
    return [encode(image, kind) for image, kind in zip(noise, kinds, strict=True)]


def installed_formats():
    """Names of the file formats that can be written here."""
    found = []
    for name in FORMATS:
        with contextlib.suppress(ValueError):
            check_runtime(name)
            found.append(name)
    return found


def config_of(served):
    """The configuration of docs/serving.md that serves two versions by their labels."""
    page = pathlib.Path(__file__).parents[2] / "docs" / "serving.md"
    config = page.read_text().partition("```proto\n")[2].partition("```")[0]
    config = config.replace("/models/glyphs_lifted", str(served.folder))
    return config.replace("glyphs_lifted", NAME)


@pytest.fixture(scope="session")
def server(served):
    """The ports of the protocol test server."""
    with protocol_server.serving(config_of(served)) as ports:
        yield ports


@pytest.fixture(params=["grpc", "http"])
def address(request, server):
    """The server's address, by either protocol."""
    return address_of(request.param, server)


def address_of(scheme, ports):
    return f"{scheme}://127.0.0.1:{ports.grpc if scheme == 'grpc' else ports.rest}"


@pytest.fixture
def files(contents, tmp_path):
    """Paths of the contents."""
    paths = [tmp_path / f"{i}.img" for i in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        pathlib.Path(path).write_bytes(content)
    return paths
