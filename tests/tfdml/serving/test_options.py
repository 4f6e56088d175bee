import pytest

from tfdml.serving.options import ExportOptions, export_options, options_kept


def test_options_of_a_dictionary_are_checked():
    assert export_options({}) == ExportOptions()
    assert export_options({"precision": "int8", "licence": "MIT"}).licence == "MIT"
    for options, message in (
        ({"precison": "int8"}, "Did you mean 'precision'?"),
        ({"precision": "int4"}, "`precision` .*Received: precision='int4'"),
        ({"on_bad_image": "skip"}, "`on_bad_image` .*Received: on_bad_image='skip'"),
        ({"max_pixels": 0}, "`max_pixels` .*Received: max_pixels=0"),
        ({"max_pixels": 178_956_971}, "`max_pixels` must be at most 178,956,970, .*=178956971"),
    ):
        with pytest.raises(ValueError, match=message):
            export_options(options)
    with pytest.raises(TypeError, match="`max_pixels` must be an integer"):
        export_options({"max_pixels": "many"})


def test_the_largest_image_is_at_least_one_of_the_model():
    options = export_options({"max_pixels": 12})
    options.check_size((3, 4, 1))
    with pytest.raises(ValueError, match="Received: max_pixels=12, pixels=15"):
        options.check_size((3, 5, 1))


def test_an_export_again_keeps_all_but_the_precision():
    stored = {"precision": "int8", "on_bad_image": "nan", "licence": None, "dimension": 8}
    assert options_kept(stored) == {"on_bad_image": "nan"}
    assert options_kept({"format": "onnx", "precision": "int8"}) == {"format": "onnx"}
    assert options_kept({}) == {}


def test_litert_needs_a_keras_that_writes_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda module: True)
    monkeypatch.setattr("importlib.metadata.version", lambda package: "3.12.4")
    with pytest.raises(ValueError, match=r"needs Keras 3\.13, .* Received: keras='3\.12\.4'"):
        export_options({"format": "onnx,litert"})
