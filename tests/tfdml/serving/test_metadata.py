import keras
import pytest
import tensorflow as tf

import tfdml
from pipelines import Reader
from tfdml.models import build_embedder
from tfdml.serving import ExportOptions, ServedModel, exported
from tfdml.serving.metadata import FILE, read_metadata, with_place, write_metadata
from tfdml.serving.options import MAX_PIXELS
from tfdml.serving.served_model import metadata_of


@pytest.fixture
def version(tmp_path):
    """The folder of a version, with one for its metadata."""
    (tmp_path / "assets.extra").mkdir()
    return tmp_path


def test_states_what_the_model_is_and_what_is_known_of_it(version):
    embedder = build_embedder("small_cnn", 4, input_shape=(8, 6, 1), levels=2)
    options = ExportOptions(licence="CC-BY-4.0", on_bad_image="nan")
    served = ServedModel(embedder, Reader((8, 6, 1)), options=options)
    recipe = {"dataset": "digits", "data_dir": None, "loss": "hdc"}
    metadata = metadata_of(served, recipe=recipe, trained_classes=["0", "é"])
    write_metadata(version / "assets.extra", metadata)
    assert read_metadata(version) == {
        "dimension": 8,
        "levels": 2,
        "image_size": [8, 6, 1],
        "colours": "grey",
        "format": "saved_model",
        "signatures": ["serving_default", "embed_images", "read_images", "similarity"],
        "top": {},
        "versions": {
            "tfdml": tfdml.__version__,
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
        },
        "precision": "float32",
        "on_bad_image": "nan",
        "max_pixels": MAX_PIXELS,
        "licence": "CC-BY-4.0",
        "description": None,
        "recipe": recipe,
        "trained_classes": ["0", "é"],
    }
    assert exported.recipe_of(version) == recipe


NULL = b'{"trained_classes": null, "recipe": {"dataset": null, "data_dir": null}}'


@pytest.mark.parametrize(
    "content", [None, b"", b"words", b"[1]", b"\xff", b'{"recipe": [1]}', NULL, b"[" * 10**5]
)
def test_what_another_program_wrote_yields_nothing(content, version):
    if content is not None:
        (version / "assets.extra" / FILE).write_bytes(content)
    assert exported.recipe_of(version) == {}
    assert read_metadata(version).get("trained_classes") is None


def test_paths_of_another_place_are_made_relative_to_here(tmp_path, monkeypatch):
    for name in ("photos", "annotated", "here"):
        (tmp_path / name).mkdir()
    recipe = {"data_dir": "photos", "boxes": "annotated", "weights": "gone", "steps": 2}
    monkeypatch.chdir(tmp_path / "here")
    assert with_place(recipe, tmp_path) == {**recipe, "data_dir": "../photos"}
    absolute = {"data_dir": str(tmp_path / "photos")}
    assert with_place(absolute, tmp_path) == absolute
