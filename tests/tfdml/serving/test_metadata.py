import keras
import pytest
import tensorflow as tf

import tfdml
from pipelines import Reader
from tfdml.models import build_embedder
from tfdml.serving import ExportOptions, ServedModel, exported
from tfdml.serving.metadata import FILE, metadata_of, read_metadata, with_place, write_metadata
from tfdml.serving.options import MAX_PIXELS


def test_states_what_the_model_is_and_what_is_known_of_it(tmp_path):
    embedder = build_embedder("small_cnn", 4, input_shape=(8, 6, 1), levels=2)
    options = ExportOptions(licence="CC-BY-4.0", on_bad_image="nan")
    served = ServedModel(embedder, Reader((8, 6, 1)), options=options)
    recipe = {"dataset": "digits", "data_dir": None, "loss": "hdc"}
    metadata = metadata_of(served, recipe=recipe, trained_classes=["0", "é"])
    version = tmp_path / "1"
    (version / "assets.extra").mkdir(parents=True)
    write_metadata(version / "assets.extra", metadata)
    assert read_metadata(version) == {
        "dimension": 8,
        "levels": 2,
        "image_size": [8, 6, 1],
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
    assert read_metadata(version)["trained_classes"] == ["0", "é"]


@pytest.mark.parametrize("content", [None, b"", b"words", b"[1]", b"\xff", b'{"recipe": [1]}'])
def test_what_another_program_wrote_yields_nothing(content, tmp_path):
    (tmp_path / "assets.extra").mkdir()
    if content is not None:
        (tmp_path / "assets.extra" / FILE).write_bytes(content)
    assert exported.recipe_of(tmp_path) == {}
    assert "trained_classes" not in read_metadata(tmp_path)


def test_paths_of_another_place_are_made_relative_to_here(tmp_path, monkeypatch):
    for name in ("photos", "annotated", "here"):
        (tmp_path / name).mkdir()
    recipe = {"data_dir": "photos", "boxes": "annotated", "weights": "gone", "steps": 2}
    monkeypatch.chdir(tmp_path / "here")
    assert with_place(recipe, tmp_path) == {**recipe, "data_dir": "../photos"}
    absolute = {"data_dir": str(tmp_path / "photos")}
    assert with_place(absolute, tmp_path) == absolute


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"trained_classes": 5}, "`trained_classes` of .* a list of texts. Received: value=5"),
        ({"trained_classes": ["a", ["b"]]}, "`trained_classes` of .* a list of texts"),
        ({"dimension": "8"}, "`dimension` of .* an integer"),
        ({"precision": 16}, "`precision` of .* a text"),
        ({"scores": [1]}, "`scores` of .* {name: value}"),
        (
            {"scores": {"untrained": {"recall@1": "high"}}},
            "`scores.untrained` of .* {name: number}",
        ),
        ({"recipe": {"dataset": ["a"]}}, r"`recipe.dataset` of .* a text. Received: value=\['a'\]"),
        ({"recipe": {"data_dir": 5}}, "`recipe.data_dir` of .* a text"),
        ({"recipe": {"embedding_dim": "8"}}, "`recipe.embedding_dim` of .* an integer"),
        ({"recipe": {"steps": 1.5}}, "`recipe.steps` of .* an integer"),
        ({"recipe": {"validation_share": "half"}}, "`recipe.validation_share` of .* a number"),
        ({"recipe": {"skip_invalid": 1}}, "`recipe.skip_invalid` of .* true or false"),
        ({"recipe": {"loss_options": {"dims": [8, "x"]}}}, "`recipe.loss_options.dims` of"),
    ],
)
def test_an_entry_of_another_kind_is_named_with_its_file(metadata, said, tmp_path):
    (tmp_path / "assets.extra").mkdir()
    write_metadata(tmp_path / "assets.extra", metadata)
    with pytest.raises(ValueError, match=said) as error:
        read_metadata(tmp_path)
    assert str(tmp_path / "assets.extra" / FILE) in str(error.value)


def test_metadata_that_are_nested_too_deeply_are_named(tmp_path):
    (tmp_path / "assets.extra").mkdir()
    (tmp_path / "assets.extra" / FILE).write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(ValueError, match=r"metadata\.json cannot be read: it is nested"):
        read_metadata(tmp_path)


def test_what_is_null_is_not_known(tmp_path):
    (tmp_path / "assets.extra").mkdir()
    recipe = {"dataset": None, "data_dir": None}
    write_metadata(tmp_path / "assets.extra", {"trained_classes": None, "recipe": recipe})
    assert read_metadata(tmp_path)["trained_classes"] is None
    assert exported.recipe_of(tmp_path) == {}
