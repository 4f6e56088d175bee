"""Scores of the run `small`, in the current folder."""

import json
import pathlib

import programs

from tfdml.programs import evaluate


def evaluation_of(name):
    return json.loads(pathlib.Path("runs", "small", f"{name}.json").read_text())


def evaluate_here(*arguments):
    """Scores Recall@1 alone."""
    evaluate.main([*map(str, arguments), "--nmi", "false", "--k", "1"])


def rejection(*arguments):
    """The one sentence in which evaluate.py rejects these arguments."""
    return programs.run(evaluate.main, *arguments, "--nmi", "false", cwd=".").sentence
