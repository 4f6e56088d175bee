"""Scores an exported embedder, or a folder of one, on classes that it was not trained on.

    tfdml-evaluate runs/glyphs_lifted --report report
    tfdml-evaluate saved_models/glyphs_lifted --dataset folder --data_dir photos --split all
    tfdml-evaluate ncm saved_models/glyphs_lifted --shots 5
    tfdml-evaluate compare runs/glyphs_lifted runs/glyphs_pddm
    tfdml-evaluate --embeddings made_by_anything.npz

The first word is the task: `retrieval`, if there is none, `one_per_class`, `ncm`, `zero_shot`,
`open_set` or `audit`; each has a `--help` of its own. The scores are printed and written to
runs/NAME/evaluation.json, of other images than those of the training to
evaluation_DATASET_FOLDER.json, or to --out. --report makes a page to look at. --embeddings keeps
the embeddings in a file, or scores those of a file without a model. `compare` shows runs that were
scored on the same images side by side, and how surely they differ from the first.
"""

import argparse
import dataclasses
import difflib
import functools
import os
import pathlib
import re
import sys

import pipelines
from tfdml import runs
from tfdml.checks import check_keras, unknown_name
from tfdml.command_line import Parser, fail, one_sentence, program_name
from tfdml.files import check_file, check_writable, naming
from tfdml.quiet import keep_printing
from tfdml.runs import score_files, scoring
from tfdml.runs.task_options import TASKS, Comparison, Retrieval

PROGRAM = program_name("evaluate")
COMPARE = "compare"


def main(arguments=None):
    keep_printing()
    task, arguments = task_of(sys.argv[1:] if arguments is None else arguments)
    if task == COMPARE:
        options, scored = parse_comparison(arguments)
        with one_sentence(PROGRAM, ValueError, TypeError, OSError):
            runs.compare(options, scored)
        return
    options = parse(task, arguments)
    with one_sentence(PROGRAM, ValueError, TypeError, OSError, ImportError):
        options, model, images, served = prepare(options)
        embedded = scoring.embed_images(options, model, images)
        results, found = score(options, embedded)
        if options.report:
            with naming(options.report):
                print(f"Report: {scoring.draw(embedded, options, results | found)}")
        if served:
            print(f"Exported: {runs.export_scored(embedded, options, served, results)}")


def prepare(options):
    """The completed options, the model, the images and what is exported, checked by their cost."""
    model = scoring.find_model(options)
    options = scoring.completed(options, model)
    options = dataclasses.replace(options, out=str(score_files.path_of(options, model)))
    check_outputs(options)
    served = images = None
    named = options.dataset, options.data_dir, options.skip_invalid
    if model.version is None or pipelines.is_listed(*named):
        images = scoring.load_images(options, model)  # before seconds of importing TensorFlow
    scoring.check_model(options, model)
    if options.export:
        served = runs.model_to_export(options, model)
    images = images or scoring.load_images(options, model)
    options, images = scoring.prepare(options, model, images)
    if served:
        runs.exported_rows(options, images)
    return options, model, images, served


def check_outputs(options):
    """Rejects files and folders that cannot be written."""
    check_file(out=pathlib.Path(options.out))
    if options.embeddings:
        check_file(embeddings=pathlib.Path(options.embeddings))
    for folder in filter(None, (options.report, options.export)):
        check_writable(pathlib.Path(folder))
    if options.export:
        check_keras()
        check_keras("backend")


def score(options, embedded):
    """Writes and prints the scores; returns them, and what else a report shows."""
    model, images = embedded.model, embedded.images
    results = scoring.TASKS[options.task](embedded, options)
    found = {
        name: results.pop(name) for name in ("per_query", "ranking", "found") if name in results
    }
    score_files.write_scores(embedded, options, results)
    if "per_query" in found:
        score_files.write_queries(options, images, found["per_query"])
    print(f"\n{runs.summary(options, model, images)}:\n{runs.results_text(results)}")
    print(f"Scores: {options.out}")
    return results, found


def task_of(arguments):
    """The task, and the arguments without it. Takes `--task NAME` and `--compare` too."""
    words, known = [*map(str, arguments)], (*TASKS, COMPARE)
    if words and words[0] in known:
        return words[0], words[1:]
    named = bool(words) and not {os.sep, ".", "-"}.intersection(words[0])
    if named and not os.path.exists(words[0]) and difflib.get_close_matches(words[0], known):
        fail(PROGRAM, unknown_name("task", words[0], known))
    options = argparse.ArgumentParser(PROGRAM, add_help=False, allow_abbrev=False)
    options.add_argument("--task", default=Retrieval.task)
    options.add_argument(f"--{COMPARE}", action="store_true")
    given, words = options.parse_known_args(words)
    task = COMPARE if given.compare else given.task
    if task not in known:
        fail(PROGRAM, unknown_name("task", task, known))
    return task, words


@functools.cache
def task_parser(task):
    kind = TASKS[task]
    names = {"datasets": pipelines.names(), "neighbours": kind.neighbours}
    tasks = f"Tasks: {', '.join([*TASKS, COMPARE])}; `{PROGRAM} TASK --help` describes each."
    return Parser(kind, names, kind.__doc__, prog=f"{PROGRAM} {task}", epilog=tasks)


def parse(task, arguments):
    """The options of a task. Imports neither TensorFlow nor Keras."""
    parser = task_parser(task)
    for name in filter(None, (re.match(r"--([^=.]+)", word) for word in arguments)):
        others = [task for task, kind in TASKS.items() if name[1] in kind.__dataclass_fields__]
        if others and task not in others:
            words = f"`{name[1]}` is an option of the task {' and '.join(others)}"
            parser.error(f"{words}. Received: task={task!r}")
    return parser.settings_of(parser.parse_args(arguments))


def parse_comparison(arguments):
    """The options of a comparison, and its runs. Imports neither TensorFlow nor Keras."""
    parser = Parser(Comparison, prog=f"{PROGRAM} {COMPARE}", description="Compares scored runs.")
    explained = "runs/NAME, or files of scores in it"
    parser.add_argument("runs", nargs="+", type=os.path.expanduser, help=explained)
    given = parser.parse_args(arguments)
    return parser.settings_of(given), given.runs
