"""The task that the words of evaluate.py name."""

import pytest

from tfdml.programs import evaluate


def test_the_task_is_the_first_word_or_an_option():
    for words in (["ncm", "x"], ["x", "--task", "ncm"], ["--task=ncm", "x"]):
        assert evaluate.task_of(words) == ("ncm", ["x"])
    assert evaluate.task_of(["x", "--k", "5"]) == ("retrieval", ["x", "--k", "5"])
    assert evaluate.task_of(["compare", "a", "b"]) == ("compare", ["a", "b"])


def test_values_are_not_taken_for_options():
    settings = evaluate.parse("ncm", ["saved_models/x", "--out", "report", "--dataset", "folder"])
    assert settings.out == "report"


def test_a_misspelt_task_is_named(capsys):
    with pytest.raises(SystemExit, match="2"):
        evaluate.main(["--task", "retreival", "saved_models/x"])
    expected = (
        "tfdml-evaluate: error: Unknown task 'retreival'. Did you mean 'retrieval'? Available: "
    )
    assert capsys.readouterr().err.startswith(expected)
