"""Checks that no test of another module makes."""

import json
import sys

import keras
import programs
import pytest

import tfdml
from tfdml import export
from tfdml.checks import check_keras
from tfdml.programs import evaluate, train
from tfdml.serving import export_model


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Writes keras.json of a process that has not imported Keras, and returns its path."""
    monkeypatch.delitem(sys.modules, "keras")
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))

    def write(content):
        path = tmp_path / "keras.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"image_data_format": "channels_first"}, ["`image_data_format`", "channels_last"]),
        ({"floatx": "float16"}, ["`floatx`", "must be float32", "floatx='float16'"]),
        ({"backend": "jax"}, ["`backend`", "must be tensorflow", "backend='jax'"]),
        ([], ["must be of the form {name: value}"]),
    ],
)
def test_a_setting_of_keras_that_cannot_be_is_named_with_its_file(content, words, settings):
    path = settings(content)
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        check_keras("floatx", "image_data_format", "backend")
    assert [word for word in [path, *words] if word not in str(error.value)] == []


def test_a_backend_that_there_is_not_is_named(settings, monkeypatch):
    settings({})
    monkeypatch.setenv("KERAS_BACKEND", "caffe")
    with pytest.raises(ValueError, match=r"jax or torch, and installed. Received: backend='caffe'"):
        check_keras()


@pytest.mark.parametrize("content", [None, "", "{", {}, {"floatx": "float64"}])
def test_other_settings_of_keras_are_accepted(content, settings):
    if content is not None:
        settings(content)
    check_keras()


def test_the_variable_of_the_backend_comes_before_the_file(settings, monkeypatch):
    settings({"backend": "jax"})
    check_keras("floatx")
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    check_keras()
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    with pytest.raises(ValueError, match=r"variable KERAS_BACKEND. Received: backend='torch'"):
        check_keras("backend")


@pytest.fixture
def channels_first():
    keras.config.set_image_data_format("channels_first")
    yield
    keras.config.set_image_data_format("channels_last")


@pytest.mark.usefixtures("channels_first")
@pytest.mark.parametrize(
    ("main", "arguments"), [(train.main, ["--run", "x"]), (export.main, ["runs/x"])]
)
def test_programs_reject_settings_before_any_work(main, arguments, tmp_path):
    message = programs.run(main, *arguments, cwd=tmp_path).sentence
    assert "`image_data_format` of Keras must be channels_last" in message
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("channels_first")
def test_a_scored_model_is_exported_with_the_settings_of_keras_alone(tmp_path):
    version = tmp_path / "saved_models" / "x" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    arguments = [version, "--dataset", "digits", "--export", "out"]
    message = programs.run(evaluate.main, *arguments, cwd=tmp_path).sentence
    assert "`image_data_format` of Keras must be channels_last" in message


def test_models_reject_settings(monkeypatch, tmp_path, channels_first):
    with pytest.raises(ValueError, match=r"by keras.config. Received: .*='channels_first'"):
        tfdml.models.build_embedder("small_cnn", 4, input_shape=(28, 28, 1))
    embedder = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()])
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with pytest.raises(ValueError, match=r"`backend` of Keras must be tensorflow"):
        export_model(embedder, tmp_path / "1")
