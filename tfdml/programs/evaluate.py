"""Scores an exported embedder, or a folder of one, on classes that it was not trained on.

    tfdml-evaluate saved_models/glyphs_lifted
    tfdml-evaluate runs/glyphs_lifted --report report
    tfdml-evaluate saved_models/glyphs_lifted --export saved_models/glyphs_int8 \
        --export_options.precision int8
    tfdml-evaluate saved_models/glyphs_lifted --dataset folder --data_dir photos --split all
    tfdml-evaluate saved_models/glyphs_pddm --rank_by similarity
    tfdml-evaluate saved_models/glyphs_lifted --gallery collection
    tfdml-evaluate ncm saved_models/glyphs_lifted --shots 5
    tfdml-evaluate compare runs/glyphs_lifted runs/glyphs_pddm

The first word is the task: `retrieval`, if there is none, `one_per_class`, `ncm` or `zero_shot`;
each has a `--help` of its own. The scores are printed and written to runs/NAME/evaluation.json, of
other images than those of the training to evaluation_DATASET_FOLDER.json, or to --out. --report
makes a page to look at. `compare` shows runs that were scored on the same images side by side, and
how surely they differ from the first.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import sys

import pipelines
from tfdml.checks import check, check_keras, unknown_name
from tfdml.command_line import Parser, fail, one_sentence, program_name
from tfdml.files import check_file, check_writable, naming
from tfdml.quiet import import_tensorflow, keep_printing
from tfdml.runs.scoring import output
from tfdml.runs.scoring.comparison import Comparison, compare
from tfdml.runs.scoring.exporting import export_scored, model_to_export
from tfdml.runs.scoring.images import load_images
from tfdml.runs.scoring.model import completed, find_model
from tfdml.runs.scoring.ncm import NearestClassMean
from tfdml.runs.scoring.one_per_class import OnePerClass
from tfdml.runs.scoring.page import draw, searched
from tfdml.runs.scoring.retrieval import Retrieval
from tfdml.runs.scoring.zero_shot import ZeroShot

PROGRAM = program_name("evaluate")
COMPARE = "compare"
TASKS = {kind.task: kind for kind in (Retrieval, OnePerClass, NearestClassMean, ZeroShot)}


def main(arguments=None):
    keep_printing()
    task, arguments = task_of(sys.argv[1:] if arguments is None else arguments)
    if task == COMPARE:
        settings, runs = parse_comparison(arguments)
        with one_sentence(PROGRAM, ValueError, TypeError, OSError):
            compare(settings, runs)
        return
    settings = parse(task, arguments)
    with one_sentence(PROGRAM, ValueError, TypeError, OSError, ImportError):
        model = find_model(settings)
        settings = completed(settings, model)
        settings = dataclasses.replace(settings, out=str(output.path_of(settings, model)))
        check_outputs(settings)
        if getattr(settings, "export", None):
            check_keras()
        images = None
        if pipelines.is_listed(settings.dataset, settings.data_dir, settings.skip_invalid):
            images = load_images(settings, model)  # before seconds of importing TensorFlow
        import_tensorflow()
        if task == "retrieval":
            score_retrieval(settings, model, images)
        else:
            score(settings, model, images)


def task_of(arguments):
    """The task, and the arguments without it. Takes `--task NAME` and `--compare` too."""
    words = list(map(str, arguments))
    if words and words[0] in (*TASKS, COMPARE):
        return words[0], words[1:]
    options = argparse.ArgumentParser(PROGRAM, add_help=False, allow_abbrev=False)
    options.add_argument("--task", nargs="?", const="")
    options.add_argument(f"--{COMPARE}", action="store_true")
    given, words = options.parse_known_args(words)
    if given.compare:
        return COMPARE, words
    if given.task is None:
        if is_misspelt_task(words):
            fail(PROGRAM, unknown_name("task", words[0], [*TASKS, COMPARE]))
        return Retrieval.task, words
    if given.task not in (*TASKS, COMPARE):
        fail(PROGRAM, unknown_name("task", given.task, [*TASKS, COMPARE]))
    return given.task, words


def is_misspelt_task(words):
    """Whether the first of two words, as of a task and a model, is not the path of a model."""
    two = len(words) > 1 and not any(word.startswith("-") for word in words[:2])
    return two and not pathlib.Path(os.path.expanduser(words[0])).exists()


def parse(task, arguments):
    """The settings of a task. Imports neither TensorFlow nor Keras."""
    kind = TASKS[task]
    names = {"datasets": pipelines.names(), "neighbours": kind.neighbours}
    tasks = f"Tasks: {', '.join([*TASKS, COMPARE])}; `{PROGRAM} TASK --help` describes each."
    parser = Parser(kind, names, kind.__doc__, prog=f"{PROGRAM} {task}", epilog=tasks)
    for word in arguments:
        if option := re.match(r"--([^=.]+)", word):
            check_option(parser, kind, option[1])
    settings = parser.settings_of(parser.parse_args(arguments))
    if settings.dataset and pipelines.entry_of(settings.dataset) not in pipelines.names():
        parser.error(unknown_name("dataset", settings.dataset, pipelines.names()))
    return settings


def check_option(parser, kind, name):
    """Exits with the tasks that have an option, if this one does not."""
    fields = {task: [field.name for field in dataclasses.fields(of)] for task, of in TASKS.items()}
    tasks = [task for task, names in fields.items() if name in names]
    if tasks and kind.task not in tasks:
        words = " and ".join(tasks)
        parser.error(f"`{name}` is an option of the task {words}. Received: task={kind.task!r}")


def parse_comparison(arguments):
    """The settings of a comparison, and its runs. Imports neither TensorFlow nor Keras."""
    parser = Parser(Comparison, prog=f"{PROGRAM} {COMPARE}", description="Compares scored runs.")
    explained = "runs/NAME, saved_models/NAME, or files of scores, such as those in them"
    parser.add_argument("runs", nargs="+", type=os.path.expanduser, help=explained)
    given = parser.parse_args(arguments)
    return parser.settings_of(given), given.runs


def check_outputs(settings):
    """Raises an OSError for a file or folder that cannot be written.

    Raises a ValueError for a report among the images that are scored.
    """
    check_file(out=pathlib.Path(settings.out))
    for name in ("report", "export"):
        if getattr(settings, name, None):
            check_writable(pathlib.Path(getattr(settings, name)))
    report, images = getattr(settings, "report", None), settings.data_dir
    if report and images:
        folder = pathlib.Path(images).resolve()
        outside = not pathlib.Path(report).resolve().is_relative_to(folder)
        expectation = "`report` must be outside the folder of the images, as it holds images too"
        check(outside, expectation, report=report, data_dir=images)


def score(settings, model, images):
    """Scores the images, writes the scores and prints them.

    Args:
        settings: Those of the task.
        model: `ScoredModel`, not yet loaded.
        images: `Scored`; None for those that take minutes to read.

    Returns:
        The settings with numbers of neighbours, the loaded model, the images and the results.
    """
    model = model.loaded(settings)
    images = settings.prepare(model, images or load_images(settings, model))
    settings = settings.with_neighbours(images)
    results = settings.score(model, images)
    arrays = {name: results.pop(name, None) for name in ("embeddings", "per_query")}
    output.write(settings, model, results)
    if arrays["per_query"]:
        output.write_queries(settings, images, arrays["per_query"])
    show(settings, model, images, results)
    print(f"Scores: {settings.out}")
    return settings, model, images, {**results, **arrays}


def score_retrieval(settings, model, images):
    """Scores a retrieval; draws its report and exports the model where that is asked for."""
    served = model_to_export(settings, model)
    if settings.index:
        from tfdml.evaluation.approximate import load_faiss

        load_faiss()  # says what to install before the images are read
    settings, model, images, results = score(settings, model, images)
    if settings.report:
        with naming(settings.report):
            page = draw(settings, model, images, results)
        print(f"Report: {page}")
    if settings.export:
        print(f"Exported: {export_scored(settings, model, images, served, results)}")


def show(settings, model, images, results):
    """Prints the scores, and what they are of."""
    from tfdml.runs.tables import results_text  # which waits for NumPy

    split = images.split
    print(
        f"\n{model.version} on {len(split.labels):,} images of {split.num_classes:,} classes "
        f"({settings.split}) of {settings.dataset}{searched(images.queries)}{settings.ranking}:\n"
        f"{results_text(results)}"
    )
