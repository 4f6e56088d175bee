import pytest
from mean_colours import CLASSES, PARENTS, data_of, embedding_of, saved_model


@pytest.fixture(scope="session")
def version(tmp_path_factory):
    """A model whose recipe names its photos; their hierarchy is beside it."""
    folder = tmp_path_factory.mktemp("tasks")
    lines = "".join(f"{child},{parent}\n" for child, parent in PARENTS.items())
    (folder / "tree.csv").write_text(f"class,parent\n{lines}")
    return saved_model(folder)[1]


@pytest.fixture(scope="session")
def photos(version):
    return version.parents[2] / "photos"


@pytest.fixture(scope="session")
def rows_of(photos):
    """A function from names of classes to the embeddings of their images and their labels."""

    def rows_of(names=CLASSES[4:]):
        images, labels = data_of(photos, names)
        return embedding_of(images).numpy(), labels

    return rows_of


@pytest.fixture(autouse=True, scope="module")
def _models_are_loaded_once(loaded_once):
    """For all files of this folder."""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
