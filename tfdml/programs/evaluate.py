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
    tfdml-evaluate saved_models/glyphs_lifted --embeddings glyphs.npz
    tfdml-evaluate --embeddings made_by_anything.npz

The first word is the task: `retrieval`, if there is none, `one_per_class`, `ncm` or `zero_shot`;
each has a `--help` of its own. The scores are printed and written to runs/NAME/evaluation.json, of
other images than those of the training to evaluation_DATASET_FOLDER.json, or to --out. --report
makes a page to look at. --embeddings keeps the embeddings in a file, or scores those of a file
without a model. `compare` shows runs that were scored on the same images side by side, and
how surely they differ from the first.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import sys

import pipelines
from tfdml import runs
from tfdml.checks import check, check_keras, unknown_name
from tfdml.command_line import Parser, fail, one_sentence, program_name
from tfdml.files import check_file, check_writable, naming
from tfdml.quiet import keep_printing
from tfdml.runs import scoring
from tfdml.runs.tables import results_text
from tfdml.runs.task_options import (
    CHANGING,
    Comparison,
    NearestClassMean,
    OnePerClass,
    Retrieval,
    ZeroShot,
)

PROGRAM = program_name("evaluate")
COMPARE = "compare"
TASKS = {kind.task: kind for kind in (Retrieval, OnePerClass, NearestClassMean, ZeroShot)}


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
        model = scoring.find_model(options)
        options = scoring.completed(options, model)
        options = dataclasses.replace(options, out=str(scoring.path_of(options, model)))
        check_outputs(options)
        score(options, model)


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
    """The options of a task. Imports neither TensorFlow nor Keras."""
    kind = TASKS[task]
    names = {"datasets": pipelines.names(), "neighbours": kind.neighbours}
    tasks = f"Tasks: {', '.join([*TASKS, COMPARE])}; `{PROGRAM} TASK --help` describes each."
    parser = Parser(kind, names, kind.__doc__, prog=f"{PROGRAM} {task}", epilog=tasks)
    for word in arguments:
        if option := re.match(r"--([^=.]+)", word):
            check_option(parser, kind, option[1])
    options = parser.settings_of(parser.parse_args(arguments))
    if options.dataset and pipelines.entry_of(options.dataset) not in pipelines.names():
        parser.error(unknown_name("dataset", options.dataset, pipelines.names()))
    return options


def check_option(parser, kind, name):
    """Exits with the tasks that have an option, if this one does not."""
    fields = {task: [field.name for field in dataclasses.fields(of)] for task, of in TASKS.items()}
    tasks = [task for task, names in fields.items() if name in names]
    if tasks and kind.task not in tasks:
        words = " and ".join(tasks)
        parser.error(f"`{name}` is an option of the task {words}. Received: task={kind.task!r}")


def parse_comparison(arguments):
    """The options of a comparison, and its runs. Imports neither TensorFlow nor Keras."""
    parser = Parser(Comparison, prog=f"{PROGRAM} {COMPARE}", description="Compares scored runs.")
    explained = "runs/NAME, saved_models/NAME, or files of scores, such as those in them"
    parser.add_argument("runs", nargs="+", type=os.path.expanduser, help=explained)
    given = parser.parse_args(arguments)
    return parser.settings_of(given), given.runs


def check_outputs(options):
    """Raises an OSError for a file or folder that cannot be written.

    Raises a ValueError for a report among the images that are scored.
    """
    check_file(out=pathlib.Path(options.out))
    if options.embeddings:
        check_file(embeddings=pathlib.Path(options.embeddings))
    for name in ("report", "export"):
        if getattr(options, name, None):
            check_writable(pathlib.Path(getattr(options, name)))
    report, images = getattr(options, "report", None), options.data_dir
    if report and images:
        folder = pathlib.Path(images).resolve()
        outside = not pathlib.Path(report).resolve().is_relative_to(folder)
        expectation = "`report` must be outside the folder of the images, as it holds images too"
        check(outside, expectation, report=report, data_dir=images)


def score(options, model):
    """Scores the images, writes the scores and prints them; draws and exports what is asked for."""
    served, images, exports = None, None, getattr(options, "export", None)
    if exports:
        check_keras()
    if model.version is None or pipelines.is_listed(
        options.dataset, options.data_dir, options.skip_invalid
    ):
        images = scoring.load_images(options, model)  # before seconds of importing TensorFlow
    scoring.check_model(options, model)
    if exports:
        served = runs.model_to_export(options, model)
    options, images = scoring.prepare(options, model, images or scoring.load_images(options, model))
    if exports:
        runs.exported_rows(options, images)
    embedded = scoring.embed_images(options, model, images)
    results = scoring.TASKS[options.task](embedded, options)
    found = {name: results.pop(name) for name in ("per_query", "ranking") if name in results}
    scoring.write_scores(embedded, options, results)
    if "per_query" in found:
        scoring.write_queries(options, images, found["per_query"])
    print(f"\n{summary(options, model, images)}:\n{results_text(results)}")
    print(f"Scores: {options.out}")
    if getattr(options, "report", None):
        with naming(options.report):
            texts = title_of(options, model), facts_of(options, model, images)
            page = scoring.draw(embedded, options, results | found, *texts)
        print(f"Report: {page}")
    if exports:
        print(f"Exported: {runs.export_scored(embedded, options, served, results)}")


def summary(options, model, images):
    """What was scored, in words, and how it was ranked or classified if not in the usual way."""
    unseen = options.task == "zero_shot"
    split = images.split.subset(images.queries) if unseen else images.split
    lines = [f"{model.version or options.embeddings} on {counts_of(split)}"]
    lines[0] += f" ({options.split}) of {options.dataset}" if options.dataset else ""
    draws = f"{options.draws} draw{'s' * (options.draws > 1)}" if hasattr(options, "draws") else ""
    if unseen:
        lines.append("the nearest mean of the related classes of each class")
    elif images.queries is not None:
        lines.append(searched(images.queries))
    if options.task == "ncm":
        shots = f"{options.shots:,} at most" if options.shots else "half"
        lines.append(f"the nearest mean of {shots} of the images of each class, {draws}")
    if options.task == "one_per_class":
        lines.append(f"among one image of each class, {draws}")
    if getattr(options, "gallery", None):
        index = ", through its index" if options.index else ""
        lines.append(f"in the gallery {options.gallery}{index}")
    if getattr(options, "rerank", None):
        lines.append(f"the {options.rerank:,} nearest of each ranked by the learned similarity")
    elif options.rank_by == "similarity":
        lines.append("ranked by the learned similarity")
    return ",\n".join(lines)


def facts_of(options, model, images):
    """{word: text}, how the scores came about, for the page."""
    images_of = f", {options.split} of {data_of(options)}" if options.dataset else ""
    facts = {
        "model": model.version or options.embeddings,
        "images": counts_of(images.split) + images_of,
        "ranked by": "distance" if options.rank_by == "distance" else "the learned similarity",
    }
    changed = options.changed(("boxes", *CHANGING))
    facts |= {name.replace("_", " "): getattr(options, name) for name in changed}
    recipe = ("loss", "backbone", "embedding_dim", "steps", "seed")
    facts |= {name.replace("_", " "): model.recipe[name] for name in recipe if name in model.recipe}
    if images.queries is not None:
        facts["searched"] = searched(images.queries)
    return facts


def title_of(options, model):
    return f"{model.name} on {data_of(options)} ({options.split})" if model.version else model.name


def data_of(options):
    """The name of the dataset, and of a user's own images that of their folder or file."""
    own = options.dataset in ("folder", "csv", "cache") and options.data_dir
    return f"{options.dataset} {pathlib.Path(own).resolve().name}" if own else options.dataset


def counts_of(split):
    return f"{len(split.labels):,} images of {split.num_classes:,} classes"


def searched(queries):
    return f"{queries.sum():,} queries in a gallery of {(~queries).sum():,}"
